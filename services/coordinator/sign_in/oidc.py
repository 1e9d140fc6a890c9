"""Sign-in with an identity provider: the authorization code flow with PKCE.

`mallorn login` listens on loopback and sends the browser here with its port and the digest
of a secret. The signed-in user confirms on a page, which sends the browser to that port
with a code; code and secret together are exchanged for an API key (RFC 8252).
"""

import html
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mallorn.core.api_keys import Scope, hash_secret, new_secret
from mallorn.core.errors import NotFound
from mallorn.core.values.access_control import NewApiKey
from mallorn.core.version import API
from mallorn.db.repositories.access_control import ApiKeys, Owners, SignIns
from mallorn.services.coordinator.sign_in.browser_sessions import (
    SIGNED_IN_SEC,
    OnThePage,
    set_cookie,
    set_session_cookie,
    web_page_url,
)
from mallorn.services.coordinator.sign_in.oidc_provider import Provider, ProviderDep, SignInRefused
from mallorn.services.coordinator.web.app_context import PartsDep
from mallorn.services.coordinator.web.authenticator import READMIT_HINT, required_scopes_extra
from mallorn.services.coordinator.web.caller_dependencies import CallerDep, cookie_name

#: Cookie with the secrets of a sign-in while the browser is at the provider.
COOKIE: Final = "mallorn_oidc"
AWAY_SEC: Final = 600
KEPT: Final = ("state", "nonce", "verifier")
REDIRECT: Final = HTTPStatus.SEE_OTHER
CODE_SEC: Final = 60.0
KEY_DAYS: Final = 90.0  # the provider may sign the user in for less long
CONSENT: Final = """<!doctype html><html lang="en"><title>Mallorn</title>
<p>The command line of {name} asks for a key to this service as {owner}.
Continue only if you just typed <code>mallorn login</code>.</p>
<form method="post" action="{action}"><button>Give it a key</button></form></html>"""
NAME: Final = "^[A-Za-z0-9-]{1,100}$"
PORT_QUERY: Final = Query(ge=1024, le=65535, description="Port of `mallorn login` on loopback.")
CHALLENGE_QUERY: Final = Query(
    pattern="^[0-9a-f]{64}$", description="SHA-256 of a secret of `mallorn login`, in hex."
)


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
def redirect_to_provider(
    request: Request,
    provider: OpenProvider,
    port: Annotated[int | None, PORT_QUERY] = None,
    challenge: Annotated[str | None, CHALLENGE_QUERY] = None,
    name: Annotated[str | None, Query(pattern=NAME, description="User and host that ask.")] = None,
) -> RedirectResponse:
    """Redirect to the identity provider, which redirects to `/session/oidc/callback`.

    `mallorn login` sends `port`, `challenge` and `name`, and gets a key in the end.
    """
    secrets = {name: new_secret() for name in KEPT}
    asking = (str(port), challenge, name) if port and challenge and name else ()
    response = RedirectResponse(provider.login_url(_callback_url(request), **secrets), REDIRECT)
    # Secrets contain no dot and no character that a cookie must escape.
    # Lax: the browser returns by a navigation that another site started.
    cookie = ".".join((*secrets.values(), *asking))
    set_cookie(request, response, COOKIE, cookie, AWAY_SEC, is_lax=True)
    return response


@router.get("/callback", status_code=REDIRECT, response_class=RedirectResponse)
def complete_sign_in(
    request: Request,
    parts: PartsDep,
    provider: OpenProvider,
    state: Annotated[str, Query(description="The `state` sent to the provider.")] = "",
    code: Annotated[str, Query(description="The provider's authorization code.")] = "",
    error: Annotated[str, Query(description="The error that the provider reports.")] = "",
) -> Response:
    """Complete the sign-in at the identity provider; redirect the browser to the page.

    After `mallorn login`, ask on a page of its own whether it gets a key.
    """
    # The secrets that the browser left with; empty if its cookie is missing or malformed.
    values = request.cookies.get(cookie_name(request, COOKIE), "").split(".")
    asking = dict(zip(("port", "challenge", "name"), values[len(KEPT) :], strict=False))
    is_whole = len(values) >= len(KEPT) and all(values)
    secrets = dict(zip(KEPT, values, strict=False)) if is_whole else {}
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
    response: Response = RedirectResponse(web_page_url(request), REDIRECT)
    if asking:
        name = asking.pop("name", "")
        action = f"{_callback_url(request).removesuffix('callback')}code?{urlencode(asking)}"
        words = {"name": name, "owner": owner, "action": action}
        page = CONSENT.format_map({word: html.escape(text) for word, text in words.items()})
        # The form needs an Origin header, which `no-referrer` would empty.
        response = HTMLResponse(page, headers={"Referrer-Policy": "same-origin"})
    response.delete_cookie(cookie_name(request, COOKIE), httponly=True, samesite="lax")
    set_session_cookie(request, response, cookie)
    return response


@router.post(
    "/code",
    status_code=REDIRECT,
    response_class=RedirectResponse,
    openapi_extra=required_scopes_extra(*Scope),
)
def send_code(
    parts: PartsDep,
    caller: CallerDep,
    port: Annotated[int, PORT_QUERY],
    challenge: Annotated[str, CHALLENGE_QUERY],
) -> RedirectResponse:
    """Send the browser to `mallorn login` with a code, which is valid once and for a minute."""
    with parts.database.transaction() as session:
        code = SignIns(session).create(caller.owner, caller.scopes, CODE_SEC, challenge)
    return RedirectResponse(f"http://127.0.0.1:{port}/?code={code}", REDIRECT)


@router.post("/key", status_code=HTTPStatus.CREATED, dependencies=[Depends(_open_provider)])
def exchange_code(
    parts: PartsDep,
    code: Annotated[str, Query(max_length=100, description="The code that the browser brought.")],
    verifier: Annotated[str, Query(max_length=100, description="The secret of which a digest was sent.")],
    name: Annotated[str, Query(pattern=NAME, description="Name of the key.")],
) -> NewApiKey:
    """Exchange a code for an API key with the scopes of the sign-in, valid for 90 days.

    There is no body, which would be read only from callers with a key.
    """
    with parts.database.transaction() as session:
        sign_in = SignIns(session).find_by_cookie(code)
        if sign_in is None or sign_in.key_digest != hash_secret(verifier):
            raise SignInRefused("this code is unknown or too old", hint="mallorn login URL")
        SignIns(session).end(code)
        return ApiKeys(session).create(sign_in.owner, name, sign_in.scopes, KEY_DAYS)


def _callback_url(request: Request) -> str:
    return f"{web_page_url(request).rstrip('/')}{API}/session/oidc/callback"
