"""Sign-in with an identity provider: the authorization code flow with PKCE."""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse

from mallorn.core.api_keys import new_secret
from mallorn.core.errors import NotFound
from mallorn.core.version import API
from mallorn.db.repositories.access_control import Owners, SignIns
from mallorn.services.coordinator.sign_in.browser_sessions import (
    SIGNED_IN_SEC,
    OnThePage,
    set_cookie,
    set_session_cookie,
    web_page_url,
)
from mallorn.services.coordinator.sign_in.oidc_provider import Provider, ProviderDep, SignInRefused
from mallorn.services.coordinator.web.app_context import PartsDep
from mallorn.services.coordinator.web.authenticator import READMIT_HINT
from mallorn.services.coordinator.web.caller_dependencies import cookie_name

#: Cookie with the secrets of a sign-in while the browser is at the provider.
COOKIE: Final = "mallorn_oidc"
AWAY_SEC: Final = 600
KEPT: Final = ("state", "nonce", "verifier")
REDIRECT: Final = HTTPStatus.SEE_OTHER


def _open_provider(request: Request, provider: ProviderDep) -> Provider:
    """Return the provider. Raises NotFound if there is none, TooMany above the rate limit."""
    if provider is None:
        raise NotFound("this service has no identity provider", hint="set MALLORN_OIDC_ISSUER")
    address = request.client.host if request.client else "this client"
    provider.visits.count_request(address, address)
    return provider


OpenProvider = Annotated[Provider, Depends(_open_provider)]
router = APIRouter(prefix="/session/oidc", tags=["session"], route_class=OnThePage)


@router.get("", status_code=REDIRECT, response_class=RedirectResponse)
def redirect_to_provider(request: Request, provider: OpenProvider) -> RedirectResponse:
    """Redirect to the identity provider, which redirects to `/session/oidc/callback`."""
    secrets = {name: new_secret() for name in KEPT}
    response = RedirectResponse(provider.login_url(_callback_url(request), **secrets), REDIRECT)
    # Secrets contain no dot and no character that a cookie must escape.
    # Lax: the browser returns by a navigation that another site started.
    set_cookie(request, response, COOKIE, ".".join(secrets.values()), AWAY_SEC, is_lax=True)
    return response


@router.get("/callback", status_code=REDIRECT, response_class=RedirectResponse)
def complete_sign_in(
    request: Request,
    parts: PartsDep,
    provider: OpenProvider,
    state: Annotated[str, Query(description="The `state` sent to the provider.")] = "",
    code: Annotated[str, Query(description="The provider's authorization code.")] = "",
    error: Annotated[str, Query(description="The error that the provider reports.")] = "",
) -> RedirectResponse:
    """Complete the sign-in at the identity provider; redirect the browser to the page."""
    # The secrets that the browser left with; empty if its cookie is missing or malformed.
    values = request.cookies.get(cookie_name(request, COOKIE), "").split(".")
    is_whole = len(values) == len(KEPT) and all(values)
    secrets = dict(zip(KEPT, values, strict=True)) if is_whole else {}
    if not secrets or secrets["state"] != state:
        raise SignInRefused(
            "this sign-in was started in another browser, or too long ago", hint="sign in again"
        )
    if error or not code:
        reason = error[:200] or "the answer has no authorization code"
        raise SignInRefused(f"{provider.name} did not sign you in: {reason}", hint="sign in again")
    nonce, verifier = secrets["nonce"], secrets["verifier"]
    owner, scopes = provider.exchange_code_for_owner(code, _callback_url(request), nonce, verifier)
    with parts.database.transaction() as session:
        if Owners(session).is_banned(owner):
            raise SignInRefused(f"{owner} is banned from this service", hint=READMIT_HINT)
        cookie = SignIns(session).create(owner, scopes, SIGNED_IN_SEC)
    response = RedirectResponse(web_page_url(request), REDIRECT)
    response.delete_cookie(cookie_name(request, COOKIE), httponly=True, samesite="lax")
    set_session_cookie(request, response, cookie)
    return response


def _callback_url(request: Request) -> str:
    return f"{web_page_url(request).rstrip('/')}{API}/session/oidc/callback"
