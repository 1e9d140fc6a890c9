"""Limits requests before they are parsed, and how many event streams start at once.

Limited are the URL, the headers, and the body's size and duration. A body is read only
after its sender was authenticated and passed the rate limit, except the small one of LOGIN.
"""

import math
import random
import re
import time
from asyncio import Semaphore
from typing import Final

import anyio
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mallorn.core.errors import HeadTooLarge, MallornError, TooLarge, TooSlow, Unavailable
from mallorn.core.version import API
from mallorn.services.coordinator.web.app_context import AppContext
from mallorn.services.coordinator.web.caller_dependencies import authenticate_request
from mallorn.services.coordinator.web.error_responses import BodyRefused, error_response
from mallorn.services.coordinator.web.forwarded_headers import HttpMiddleware

LONGEST_ADDRESS: Final = 16 * 1024  # bytes
LARGEST_HEADERS: Final = 32 * 1024
LARGEST_BODY: Final = 1 << 18  # five times the longest options with a target
#: Time limit for receiving a body, plus the time that its bytes take at the slowest rate.
WAIT_SEC: Final = 30.0
SLOWEST_BYTES_PER_SEC: Final = 4 * 1024
_OWN_COOKIE: Final = re.compile(rb"mallorn_[^\\]+")
Headers = list[tuple[bytes, bytes]]
UPLOAD: Final = "PUT", f"{API}/models"  # its limit is MALLORN_MAX_MODEL_BYTES
PARTS: Final = f"{API}/uploads/"  # the limit of such a body is its part's size
LOGIN: Final = "POST", f"{API}/session/oidc/key"  # its body is the credential, so it needs no other
LARGEST_LOGIN: Final = 1 << 11


class RequestLimits(HttpMiddleware):
    def __init__(self, app: ASGIApp, parts: AppContext) -> None:
        super().__init__(app)
        self._parts = parts

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Remove other apps' cookies, and escapes, which Python < 3.11.10 parses very slowly.
        scope["headers"] = [
            (name, b"; ".join(filter(_OWN_COOKIE.fullmatch, value.split(b"; "))))
            if name == b"cookie"
            else (name, value)
            for name, value in scope["headers"]
        ]
        body, app = _LimitedBody(scope, receive, send, self._parts), self._app
        try:
            if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
                raise HeadTooLarge(f"the URL exceeds {LONGEST_ADDRESS:,} bytes", hint="shorten the query")
            if sum(len(name) + len(value) for name, value in scope["headers"]) > LARGEST_HEADERS:
                message = f"the headers are larger than {LARGEST_HEADERS:,} bytes"
                raise HeadTooLarge(message, hint="delete this site's cookies")
            body.check_size(body.announced_bytes)
        except MallornError as error:
            app = error_response(error)
        await app(scope, body.receive, body.send)


class _LimitedBody:
    def __init__(self, scope: Scope, receive: Receive, send: Send, parts: AppContext) -> None:
        self._request = Request(scope)
        self._receive = receive
        self._send = send
        self._parts = parts
        method, path = scope["method"], scope["path"]
        is_upload = (method, path) == UPLOAD or (method == "PUT" and path.startswith(PARTS))
        self._is_login = (method, path) == LOGIN
        self._limit_bytes = math.inf if is_upload else LARGEST_LOGIN if self._is_login else LARGEST_BODY
        self._received_bytes = 0
        self._waited_sec = 0.0
        self._has_response = False
        headers = self._request.headers
        self.announced_bytes = int(headers.get("content-length", 0))  # always digits
        self._complete = not self.announced_bytes and "transfer-encoding" not in headers

    async def receive(self) -> Message:
        """Return the body's next part. Raises BodyRefused if it breaks a limit."""
        if self._complete:
            return await self._receive()
        if self._has_response:  # a stream polls for a disconnect, not for body data
            return {"type": "http.disconnect"}
        try:
            if not self._received_bytes and not self._is_login:
                await run_in_threadpool(authenticate_request, self._parts, self._request)
            message = await self._receive_in_time()
            self._received_bytes += len(message.get("body", b""))
            self.check_size(self._received_bytes)
        except MallornError as error:
            raise BodyRefused(error) from error
        self._complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a response message; if the body is not complete, close the connection."""
        if message["type"] == "http.response.start":
            self._has_response = True
            if not self._complete:
                MutableHeaders(scope=message)["Connection"] = "close"
        await self._send(message)

    def check_size(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            raise TooLarge(f"the body is larger than {self._limit_bytes:,} bytes", hint="see /docs")

    async def _receive_in_time(self) -> Message:
        limit_sec = WAIT_SEC + self._received_bytes / SLOWEST_BYTES_PER_SEC
        began_sec = time.monotonic()
        with anyio.move_on_after(max(0.0, limit_sec - self._waited_sec)):
            message = await self._receive()
            self._waited_sec += time.monotonic() - began_sec
            return message
        raise TooSlow(
            f"only {self._received_bytes:,} bytes of the body arrived in {limit_sec:.0f} s",
            hint="retry over a faster connection",
        )


AT_ONCE: Final = 8  # of the 40 threads that serve all requests
MOST_WAITING: Final = 4_000  # some ten seconds of waiting; clients give up after thirty
RETRY_SEC: Final = 5, 30


class StreamAdmission(HttpMiddleware):
    """Middleware that lets only AT_ONCE event streams start at a time; others wait."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self._slots = Semaphore(AT_ONCE)
        self._waiting = 0

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].endswith("/events"):
            await self._app(scope, receive, send)
            return
        if self._waiting >= MOST_WAITING:
            error = Unavailable("too many event streams are waiting", hint="retry a little later")
            headers = {"Retry-After": str(random.randint(*RETRY_SEC))}  # noqa: S311 - to spread
            await error_response(error, headers)(scope, receive, send)
            return
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        slots_to_release = [self._slots]

        async def release_and_send(message: Message) -> None:
            while slots_to_release:  # the stream has started: its slot is free for the next one
                slots_to_release.pop().release()
            await send(message)

        try:
            await self._app(scope, receive, release_and_send)
        finally:
            while slots_to_release:
                slots_to_release.pop().release()
