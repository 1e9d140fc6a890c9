"""Refuses requests of other web pages, and sets security headers for browsers.

Without API keys, the service trusts the user who runs it, and so every page in their
browser. So a request must name a loopback host (against DNS rebinding), and a request that
changes something must not come from another origin.
"""

from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mallorn.core.address_checks import is_loopback
from mallorn.core.errors import Forbidden, InvalidRequest, MallornError, Unavailable
from mallorn.core.storable_json import quote_untrusted
from mallorn.services.coordinator.web.authenticator import SAFE_METHODS, Authenticator
from mallorn.services.coordinator.web.error_responses import error_response
from mallorn.services.coordinator.web.forwarded_headers import HttpMiddleware

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class CrossSiteMiddleware(HttpMiddleware):
    def __init__(self, app: ASGIApp, door: Authenticator) -> None:
        super().__init__(app)
        self._door = door

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await self._refusal(scope)
        app = self._app if refusal is None else error_response(refusal)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await app(scope, receive, send_with_headers)

    async def _refusal(self, scope: Scope) -> MallornError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        requires_key = False  # also if the database does not answer
        if not names_loopback(host):
            with suppress(Unavailable):
                requires_key = await run_in_threadpool(self._door.needs_credentials)
        if not names_loopback(host) and not requires_key:
            return Forbidden(
                f"without API keys, only loopback host names are accepted, not {quote_untrusted(host)!r}",
                hint="use http://127.0.0.1, or on its host: mallorn keys create NAME --here",
            )
        if scope["method"] not in SAFE_METHODS and is_cross_site(headers, host):
            return Forbidden(
                "requests from other websites are refused",
                hint="send it from the page of this coordinator, or without a browser",
            )
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return InvalidRequest("the URL contains a NUL character", hint="see /docs")
        return None


def names_loopback(host: str) -> bool:
    """Return whether a Host header is a loopback address or localhost."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name)


def is_cross_site(headers: Headers, host: str) -> bool:
    """Return whether browser headers say that the request comes from another origin."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != host
