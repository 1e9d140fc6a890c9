"""Limits how many event streams start at once: after a restart all clients reconnect."""

import random
from asyncio import Semaphore
from typing import Final, cast

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mallorn.core.errors import Unavailable
from services.coordinator.web.error_responses import error_body

AT_ONCE: Final = 8  # of the 40 threads that serve all requests
MOST_WAITING: Final = 4_000  # some ten seconds of waiting; clients give up after thirty
RETRY_SEC: Final = 5, 30


class StreamAdmission:
    """Middleware that queues new event streams, without a thread or database connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._slots = Semaphore(AT_ONCE)
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and scope["path"].endswith("/events"):
            app = self._queued if self._waiting < MOST_WAITING else self._overloaded()
        await app(scope, receive, send)

    def _overloaded(self) -> ASGIApp:
        error = Unavailable("too many event streams are waiting", hint="retry a little later")
        headers = {"Retry-After": str(random.randint(*RETRY_SEC))}  # noqa: S311 - to spread
        return cast(ASGIApp, JSONResponse(error_body(error), error.status_code, headers))

    async def _queued(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        held = [self._slots]

        async def release_and_send(message: Message) -> None:
            while held:  # the stream has started: its slot is free for the next one
                held.pop().release()
            await send(message)

        try:
            await self._app(scope, receive, release_and_send)
        finally:
            while held:
                held.pop().release()
