"""Browser sessions: signing in sets an HttpOnly cookie, bound to the page's secret."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, unquote

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from mallorn.core.api_keys import Scope, hash_page_secret, hash_secret
from mallorn.core.errors import MallornError, Unauthorized
from mallorn.core.values.access_control import Session
from mallorn.db.repositories.access_control import SignIns
from mallorn.db.tables import SessionRow
from mallorn.services.coordinator.sign_in.oidc_provider import ProviderDep
from mallorn.services.coordinator.web.app_parts import PartsDep, get_parts
from mallorn.services.coordinator.web.authenticator import Caller, required_scopes_extra
from mallorn.services.coordinator.web.caller_dependencies import (
    COOKIE,
    PAGE_HEADER,
    CallerDep,
    add_to_audit_entry,
    cookie_name,
    read_credentials,
)

SIGNED_IN_SEC: Final = 12 * 3600.0
router = APIRouter(prefix="/session", tags=["session"])
#: Needs no key: the page must learn that a key is needed, and may always sign out.
open_router = APIRouter(prefix="/session", tags=["session"])
REFUSED_COOKIE: Final = "mallorn_refused"
TOLD_SEC: Final = 60
MOST_CHARS: Final = 500
LEAST_CHARS: Final = 32


class OnThePage(APIRoute):
    """Route that redirects browsers to the web page on an error; others get the error."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = super().get_route_handler()

        async def handle_or_redirect(request: Request) -> Response:
            try:
                return await handle(request)
            except MallornError as error:
                if "text/html" not in request.headers.get("Accept", ""):
                    raise
                # In a cookie, not in the URL: a forged link must not choose what the page says.
                response = RedirectResponse(web_page_url(request), HTTPStatus.SEE_OTHER)
                reason = quote(error.message[:MOST_CHARS], safe="")
                set_cookie(request, response, REFUSED_COOKIE, reason, TOLD_SEC)
                return response

        return handle_or_redirect


def web_page_url(request: Request) -> str:
    """Return the web page's URL: the setting MALLORN_URL or, if unset, the request's."""
    return f"{(get_parts(request).settings.url or str(request.base_url)).rstrip('/')}/"


def read_sign_in_failure(request: Request) -> str | None:
    """Return why this browser's last sign-in failed, as its cookie says; None if unknown."""
    return unquote(request.cookies.get(cookie_name(request, REFUSED_COOKIE), "")) or None


def set_cookie(
    request: Request, response: Response, name: str, value: str, seconds: float, *, is_lax: bool = False
) -> None:
    """Set an HttpOnly cookie; only with `is_lax` do navigations from other sites send it."""
    response.set_cookie(
        cookie_name(request, name),
        value,
        max_age=int(seconds),
        httponly=True,
        samesite="lax" if is_lax else "strict",
        secure=request.url.scheme == "https",
    )


@open_router.get("")
def show_session(request: Request, parts: PartsDep, provider: ProviderDep) -> Session:
    """Show who this browser is signed in as, and whether this service requires API keys."""
    try:
        caller = parts.door.authenticate(replace(read_credentials(request), key=None))
    except Unauthorized as error:
        name = provider.name if provider else None
        reason = (
            read_sign_in_failure(request)
            if parts.door.needs_credentials()
            else f"{error.message}: {error.hint}"
        )
        return Session(requires_key=True, provider=name, refusal=reason)
    return _session(caller, parts.door.needs_credentials())


@router.post("", status_code=HTTPStatus.CREATED, openapi_extra=required_scopes_extra(*Scope))
def sign_in(request: Request, response: Response, parts: PartsDep, caller: CallerDep) -> Session:
    """Sign this browser in with the request's API key, for 12 hours.

    The cookie counts only with this request's X-Mallorn-Session, a random text of the page.
    """
    credentials = read_credentials(request)
    if credentials.key is None or not parts.door.needs_credentials():
        return _session(caller, parts.door.needs_credentials())
    secret = credentials.page_secret or ""
    if len(secret) < LEAST_CHARS:
        message = f"the header {PAGE_HEADER} needs a random secret of {LEAST_CHARS} characters"
        hint = "reload the page   (programs: send the key with each request)"
        raise Unauthorized(message, hint=hint)
    row = SessionRow(
        owner=caller.owner,
        scopes=list(caller.scopes),
        page_digest=hash_page_secret(secret),
        key_id=caller.key_id or None,
        key_digest=hash_secret(credentials.key),
    )
    with parts.database.transaction() as session:
        cookie = SignIns(session).create_session(row, SIGNED_IN_SEC)
    add_to_audit_entry(request, caller.owner, "began a browser session")
    set_session_cookie(request, response, cookie)
    return _session(caller, True)


@open_router.delete("", status_code=HTTPStatus.NO_CONTENT)
def sign_out(request: Request, response: Response, parts: PartsDep) -> None:
    """Sign this browser out; its session cookie becomes invalid."""
    if cookie := read_credentials(request).cookie:
        with parts.database.transaction() as session:
            owner = SignIns(session).end_session(cookie)
        if owner is not None:
            add_to_audit_entry(request, owner, "ended a browser session")
    response.delete_cookie(cookie_name(request, COOKIE), httponly=True, samesite="strict")


def set_session_cookie(request: Request, response: Response, cookie: str) -> None:
    """Set the session cookie, and delete the cookie that tells why a sign-in failed."""
    if read_sign_in_failure(request):
        response.delete_cookie(cookie_name(request, REFUSED_COOKIE), httponly=True, samesite="strict")
    set_cookie(request, response, COOKIE, cookie, SIGNED_IN_SEC)


def _session(caller: Caller, asks: bool) -> Session:
    return Session(owner=caller.owner, scopes=caller.scopes, requires_key=asks)
