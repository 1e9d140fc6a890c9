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
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import anyio
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mallorn.core.errors import HeadTooLarge, MallornError, TooLarge, TooMany, TooSlow, Unavailable
from mallorn.core.version import API
from mallorn.services.coordinator.web.app_context import AppContext
from mallorn.services.coordinator.web.authenticator import SCOPES
from mallorn.services.coordinator.web.caller_dependencies import authenticate_request, check_scopes
from mallorn.services.coordinator.web.error_responses import BodyRefused, error_response
from mallorn.services.coordinator.web.forwarded_headers import HttpMiddleware

LONGEST_ADDRESS: Final = 16 * 1024  # bytes
LARGEST_HEADERS: Final = 32 * 1024
LARGEST_BODY: Final = 1 << 18  # five times the longest options with a target
#: MALLORN_CLIENT_WAIT_SEC limits the time of a body, plus the time that its bytes take at this rate.
PIECE_BYTES: Final = 1 << 16  # of a response that is sent at once
SLOWEST_BYTES_PER_SEC: Final = 4 * 1024
_OWN_COOKIE: Final = re.compile(rb"mallorn_[^\\]+")
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
        self._receive = receive
        self._send = send
        self._parts = parts
        method, path = scope["method"], scope["path"]
        is_upload = (method, path) == UPLOAD or (method == "PUT" and path.startswith(PARTS))
        largest = LARGEST_LOGIN if (method, path) == LOGIN else LARGEST_BODY
        self._limit_bytes = math.inf if is_upload else largest
        self._received_bytes = 0
        self._waited_sec = 0.0
        self._has_response = False
        headers = Headers(scope=scope)
        self.announced_bytes = int(headers.get("content-length", 0))  # always digits
        self._complete = not has_body(headers)

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
        """Send a response message in pieces; if the body is not complete, close the connection.

        The server buffers a piece that the client does not read, and waits before the next.
        """
        if message["type"] == "http.response.start":
            self._has_response = True
            if not self._complete:
                MutableHeaders(scope=message)["Connection"] = "close"
        content = message.get("body", b"")
        for end in range(PIECE_BYTES, len(content), PIECE_BYTES):
            await self._send({**message, "body": content[end - PIECE_BYTES : end], "more_body": True})
        if len(content) > PIECE_BYTES:
            message = {**message, "body": content[(len(content) - 1) // PIECE_BYTES * PIECE_BYTES :]}
        await self._send(message)

    def check_size(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            raise TooLarge(f"the body is larger than {self._limit_bytes:,} bytes", hint="see /docs")

    async def _receive_in_time(self) -> Message:
        limit_sec = self._parts.settings.client_wait_sec + self._received_bytes / SLOWEST_BYTES_PER_SEC
        began_sec = time.monotonic()
        with anyio.move_on_after(max(0.0, limit_sec - self._waited_sec)):
            message = await self._receive()
            self._waited_sec += time.monotonic() - began_sec
            return message
        raise TooSlow(
            f"only {self._received_bytes:,} bytes of the body arrived in {limit_sec:.0f} s",
            hint="retry over a faster connection",
        )


def has_body(headers: Headers) -> bool:
    """Return whether a request with these headers has a body that is not empty."""
    return bool(int(headers.get("content-length", 0))) or "transfer-encoding" in headers


class CallerBeforeBody(HttpMiddleware):
    """Middleware that authenticates the caller and checks its scopes before a body is read.

    It must be the innermost one, because only the scope there knows the matched route.
    """

    def __init__(self, app: ASGIApp, parts: AppContext) -> None:
        super().__init__(app)
        self._parts = parts

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        is_checked = not has_body(request.headers)

        async def check_and_receive() -> Message:
            nonlocal is_checked
            if not is_checked:
                try:
                    await run_in_threadpool(self._check, request)
                except MallornError as error:
                    raise BodyRefused(error) from error
                is_checked = True
            return await receive()

        await self._app(scope, check_and_receive, send)

    def _check(self, request: Request) -> None:
        if SCOPES in (request.scope["route"].openapi_extra or {}):  # other routes need no caller
            check_scopes(authenticate_request(self._parts, request), request)


STREAM: Final = re.compile(rf"{API}/jobs/[^/]+/events")
AT_ONCE: Final = 8  # of the 40 threads that serve all requests
AT_ONCE_PER_KEY: Final = AT_ONCE // 2
MOST_WAITING: Final = 4_000  # some ten seconds of waiting; clients give up after thirty
RETRY_SEC: Final = 5, 30


@dataclass(slots=True)
class _KeyStreams:
    """A key's event streams: how many are open or wait, and its slots to start some."""

    count: int = 0
    slots: Semaphore = field(default_factory=lambda: Semaphore(AT_ONCE_PER_KEY))


class StreamAdmission(HttpMiddleware):
    """Middleware that limits each key's event streams, and how many start at a time.

    AT_ONCE streams start at a time, AT_ONCE_PER_KEY of a key; others wait. A caller without a
    valid key gets no slot.
    """

    def __init__(self, app: ASGIApp, parts: AppContext) -> None:
        super().__init__(app)
        self._parts = parts
        self._slots = Semaphore(AT_ONCE)
        self._keys: defaultdict[tuple[str, str], _KeyStreams] = defaultdict(_KeyStreams)
        self._waiting = 0

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET" or STREAM.fullmatch(scope["path"]) is None:
            await self._app(scope, receive, send)
            return
        async with AsyncExitStack() as starting, AsyncExitStack() as stream:
            try:
                await self._admit(scope, starting, stream)
            except MallornError as error:
                await error_response(error)(scope, receive, send)
                return

            async def release_and_send(message: Message) -> None:
                await starting.aclose()  # the stream has started: its slots are free for others
                await send(message)

            await self._app(scope, receive, release_and_send)

    async def _admit(self, scope: Scope, starting: AsyncExitStack, stream: AsyncExitStack) -> None:
        if self._waiting >= MOST_WAITING:
            error = Unavailable("too many event streams are waiting", hint="retry a little later")
            error.retry_sec = random.randint(*RETRY_SEC)  # noqa: S311 - to spread
            raise error
        self._waiting += 1
        try:
            async with self._slots:
                request = Request(scope)
                caller = await run_in_threadpool(authenticate_request, self._parts, request)
            key = self._count((caller.owner, caller.key_id), stream)
            for slots in (key.slots, self._slots):
                await starting.enter_async_context(slots)
        finally:
            self._waiting -= 1

    def _count(self, key_id: tuple[str, str], stream: AsyncExitStack) -> _KeyStreams:
        key, most = self._keys[key_id], self._parts.settings.quota_streams
        if most and key.count >= most:
            message = f"this key of {key_id[0]} already follows {most:,} event streams"
            raise TooMany(message, hint="end some, or follow a job by: mallorn jobs show JOB")
        key.count += 1
        stream.callback(self._uncount, key_id)
        return key

    def _uncount(self, key_id: tuple[str, str]) -> None:
        self._keys[key_id].count -= 1
        if not self._keys[key_id].count:
            del self._keys[key_id]
