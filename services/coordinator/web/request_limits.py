"""Limits requests before they are parsed, and event streams.

Limited are the URL, the headers, and the body's size and duration. A body is read only
after its sender was authenticated, passed the rate limit and has the scope for the route,
except the small one of LOGIN.
"""

import math
import random
import re
import time
from asyncio import Semaphore
from contextlib import AsyncExitStack
from typing import Final

import anyio
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mallorn.core.errors import HeadTooLarge, MallornError, TooLarge, TooSlow, Unavailable
from mallorn.core.version import API
from mallorn.services.coordinator.web.app_parts import AppParts, get_parts
from mallorn.services.coordinator.web.authenticator import SCOPES
from mallorn.services.coordinator.web.caller_dependencies import authenticate_request, get_caller
from mallorn.services.coordinator.web.error_responses import BodyRefused, error_response
from mallorn.services.coordinator.web.forwarded_headers import HttpMiddleware
from mallorn.services.coordinator.web.quotas import ConcurrentLimit

LONGEST_ADDRESS: Final = 16 * 1024  # bytes
LARGEST_HEADERS: Final = 32 * 1024
LARGEST_BODY: Final = 1 << 18  # five times the longest options with a target
PIECE_BYTES: Final = 1 << 16  # of a response that is sent at once
#: A body may take MALLORN_CLIENT_WAIT_SEC, and the time of its bytes at this rate.
SLOWEST_BYTES_PER_SEC: Final = 4 * 1024
_OWN_COOKIE: Final = re.compile(rb"mallorn_[^\\]+")
UPLOAD: Final = "PUT", f"{API}/models"  # its limit is MALLORN_MAX_MODEL_BYTES
PARTS: Final = f"{API}/uploads/"  # the limit of such a body is its part's size
LOGIN: Final = "POST", f"{API}/session/oidc/key"  # its body is the credential
LARGEST_LOGIN: Final = 1 << 11
STREAM: Final = re.compile(r"/api/v1/jobs/[^/]+/events")
AT_ONCE: Final = 8  # of the 40 threads that serve all requests
MOST_WAITING: Final = 4_000  # some ten seconds of waiting; clients give up after thirty
RETRY_SEC: Final = 5, 30


class RequestLimits(HttpMiddleware):
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Remove other apps' cookies, and escapes, which Python < 3.11.10 parses very slowly.
        scope["headers"] = [
            (name, b"; ".join(filter(_OWN_COOKIE.fullmatch, value.split(b"; "))))
            if name == b"cookie"
            else (name, value)
            for name, value in scope["headers"]
        ]
        body, app = _LimitedBody(scope, receive, send), self._app
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
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        method, path = scope["method"], scope["path"]
        is_upload = (method, path) == UPLOAD or (method == "PUT" and path.startswith(PARTS))
        largest = LARGEST_LOGIN if (method, path) == LOGIN else LARGEST_BODY
        self._limit_bytes = math.inf if is_upload else largest
        self._received_bytes = 0
        self._waited_sec = 0.0
        self._has_response = False
        headers = Headers(scope=scope)
        self.announced_bytes = int(headers.get("content-length", 0))  # always digits
        self._complete = not self.announced_bytes and "transfer-encoding" not in headers

    async def receive(self) -> Message:
        """Return the body's next part. Raises BodyRefused if it breaks a limit."""
        if self._complete:
            return await self._receive()
        if self._has_response:  # a stream polls for a disconnect, not for body data
            return {"type": "http.disconnect"}
        try:
            message = await self._receive_in_time()
            self._received_bytes += len(message.get("body", b""))
            self.check_size(self._received_bytes)
        except MallornError as error:
            raise BodyRefused(error) from error
        self._complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a response in pieces; if the body is not complete, close the connection.

        The server buffers a piece that the client does not read, and waits before the next.
        """
        if message["type"] == "http.response.start":
            self._has_response = True
            if not self._complete:
                MutableHeaders(scope=message)["Connection"] = "close"
        content = message.get("body", b"")
        for end in range(PIECE_BYTES, len(content), PIECE_BYTES):
            piece = content[end - PIECE_BYTES : end]
            await self._send({**message, "body": piece, "more_body": True})
        if len(content) > PIECE_BYTES:
            begin = (len(content) - 1) // PIECE_BYTES * PIECE_BYTES
            message = {**message, "body": content[begin:]}
        await self._send(message)

    async def _receive_in_time(self) -> Message:
        wait_sec = get_parts(Request(self._scope)).settings.client_wait_sec
        limit_sec = wait_sec + self._received_bytes / SLOWEST_BYTES_PER_SEC
        began_sec = time.monotonic()
        with anyio.move_on_after(max(0.0, limit_sec - self._waited_sec)):
            message = await self._receive()
            self._waited_sec += time.monotonic() - began_sec
            return message
        progress = f"{self._received_bytes:,} bytes of the body arrived in {limit_sec:.0f} s"
        raise TooSlow(f"only {progress}", hint="retry over a faster connection")

    def check_size(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            message = f"the body is larger than {self._limit_bytes:,} bytes"
            raise TooLarge(message, hint="see /docs")


class CallerBeforeBody(HttpMiddleware):
    """Middleware that authenticates the caller and checks its scopes before a body is read.

    It must be the innermost one, because only the scope there knows the matched route.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)

        async def check_and_receive() -> Message:
            extra = getattr(scope.get("route"), "openapi_extra", None) or {}
            # Other routes need no caller.
            if SCOPES in extra and not hasattr(request.state, "caller"):
                try:
                    await run_in_threadpool(get_caller, request, get_parts(request), None)
                except MallornError as error:
                    raise BodyRefused(error) from error
            return await receive()

        await self._app(scope, check_and_receive, send)


class StreamAdmission(HttpMiddleware):
    """Middleware that limits a key's event streams; AT_ONCE of all start at a time.

    The others wait. A caller without a valid key gets no stream.
    """

    def __init__(self, app: ASGIApp, parts: AppParts) -> None:
        super().__init__(app)
        self._parts = parts
        self._starting = Semaphore(AT_ONCE)
        self.streams = ConcurrentLimit(parts.settings.quota_streams, "event streams")
        self._waiting = 0

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET" or STREAM.fullmatch(scope["path"]) is None:
            await self._app(scope, receive, send)
            return
        async with AsyncExitStack() as starting, AsyncExitStack() as stream:
            try:
                if self._waiting >= MOST_WAITING:
                    error = Unavailable("too many event streams are waiting", hint="retry later")
                    error.retry_sec = random.randint(*RETRY_SEC)  # noqa: S311 - to spread
                    raise error
                self._waiting += 1
                try:
                    await starting.enter_async_context(self._starting)
                finally:
                    self._waiting -= 1
                caller = await run_in_threadpool(authenticate_request, self._parts, Request(scope))
                stream.enter_context(self.streams.count_request(caller.owner, caller.key_id))
            except MallornError as refusal:
                await error_response(refusal)(scope, receive, send)
                return

            async def release_and_send(message: Message) -> None:
                await starting.aclose()  # the stream has started: another may start
                await send(message)

            await self._app(scope, receive, release_and_send)
