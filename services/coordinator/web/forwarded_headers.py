"""The base of middlewares, and those for `X-Request-ID` and `X-Forwarded-Prefix`."""

import re
from abc import ABC, abstractmethod
from contextvars import ContextVar
from secrets import token_hex
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mallorn.core.log_setup import add_log_facts

REQUEST_ID: Final = "X-Request-ID"
_WELL_FORMED: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]{1,60}){1,8}")
request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")


class HttpMiddleware(ABC):
    """ASGI middleware for HTTP requests; it passes other messages to the app unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handle = self.handle if scope["type"] == "http" else self._app
        await handle(scope, receive, send)

    @abstractmethod
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, usually by a call of the app."""


class RequestIds(HttpMiddleware):
    """Middleware that gives each request an id, in its response, its errors and its log lines.

    The id is the caller's if that is well-formed. It stays set until the request's task
    ends, because the server logs unexpected errors after the app has returned.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        given_id = Headers(scope=scope).get(REQUEST_ID, "")
        current_id = given_id if _WELL_FORMED.fullmatch(given_id) else token_hex(8)
        request_id.set(current_id)
        add_log_facts(request=current_id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = current_id
            await send(message)

        await self._app(scope, receive, send_with_id)


class ProxyPrefix(HttpMiddleware):
    """Middleware that restores the path prefix that a proxy removed, so that links contain it.

    It must be inside of all that compare paths: these compare them without a prefix.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = Headers(scope=scope).get("X-Forwarded-Prefix", "").rstrip("/")
        if _PREFIX.fullmatch(prefix):
            scope = {**scope, "root_path": prefix, "path": prefix + scope["path"]}
        await self._app(scope, receive, send)
