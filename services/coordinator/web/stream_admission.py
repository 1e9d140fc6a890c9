"""Lets in a few at a time of those who come to follow jobs: after a restart all of them come at once."""

import random
from asyncio import Semaphore
from typing import Final, cast

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mallorn.core.errors import Unavailable
from services.coordinator.web.error_responses import error_body

AT_ONCE: Final = 8  # of the forty threads that answer all requests
MOST_WAITING: Final = 4_000  # some ten seconds; who waits for longer than thirty goes away
RETRY_SEC: Final = 5, 30


class StreamAdmission:
    """Middleware in front of all routes; who waits here takes up no thread and no connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._places = Semaphore(AT_ONCE)
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and scope["path"].endswith("/events"):
            app = self._one_by_one if self._waiting < MOST_WAITING else self._full()
        await app(scope, receive, send)

    def _full(self) -> ASGIApp:
        error = Unavailable("too many come at once to follow their jobs", hint="come again a little later")
        headers = {"Retry-After": str(random.randint(*RETRY_SEC))}  # noqa: S311 - so that they part
        return cast(ASGIApp, JSONResponse(error_body(error), error.status_code, headers))

    async def _one_by_one(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        inside = [self._places]

        async def told(message: Message) -> None:
            while inside:  # it is served, however long its stream goes on
                inside.pop().release()
            await send(message)

        try:
            await self._app(scope, receive, told)
        finally:
            while inside:
                inside.pop().release()
