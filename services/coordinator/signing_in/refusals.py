"""What becomes of a refused sign-in: the browser is on its way, and shows whatever answers it."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, unquote

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from mallorn.core.errors import MallornError
from services.coordinator.web.parts import get_parts

COOKIE: Final = "mallorn_refused"
TOLD_SEC: Final = 60
MOST_CHARS: Final = 500


class OnThePage(APIRoute):
    """Leads a refused browser back to the page, which says why; a program gets the error itself."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """The route, for browsers as well."""
        handle = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                return await handle(request)
            except MallornError as error:
                if "text/html" not in request.headers.get("Accept", ""):
                    raise
                return _back(request, error)

        return told


def home(request: Request) -> str:
    """The page, as browsers reach it: behind a proxy only MALLORN_URL tells."""
    return f"{(get_parts(request).settings.url or str(request.base_url)).rstrip('/')}/"


def why_refused(request: Request) -> str | None:
    """Why this browser was not signed in a moment ago."""
    return unquote(request.cookies.get(COOKIE, "")) or None


def forget(response: Response) -> None:
    """It is signed in."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


def _back(request: Request, error: MallornError) -> Response:
    # Not in the address: whoever makes a link would choose what the page says.
    response = RedirectResponse(home(request), HTTPStatus.SEE_OTHER)
    response.set_cookie(
        COOKIE,
        quote(error.message[:MOST_CHARS]),
        max_age=TOLD_SEC,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response
