"""Sign-in with an identity provider: the authorization code flow with PKCE.

`mallorn login` listens on loopback and sends the browser here with its port and the digest
of a secret. The signed-in user confirms on a page, which sends the browser to that port
with a code; code and secret together are exchanged for an API key (RFC 8252).

The web page starts a sign-in with a random text, and finds another behind the `#` of the
address to which it returns. Both form the secret that it sends with the cookie (ADR 0100).
"""

import html
import re
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from mallorn.core.api_keys import Purpose, Scope, hash_for, hash_secret, new_secret
from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.values.access_control import NewApiKey
from mallorn.core.version import API
from mallorn.db.repositories.access_control import ApiKeys, Owners, SignIns
from mallorn.db.tables import LoginCode, SessionRow
from mallorn.services.coordinator.sign_in import browser_sessions
from mallorn.services.coordinator.sign_in.oidc_provider import Provider, ProviderDep, SignInRefused
from mallorn.services.coordinator.web.app_parts import PartsDep
from mallorn.services.coordinator.web.audit_log import add_key_to_audit_entry
from mallorn.services.coordinator.web.authenticator import READMIT_HINT
from mallorn.services.coordinator.web.caller_dependencies import add_to_audit_entry, cookie_name

#: Cookie with the secrets of a sign-in while the browser is at the provider.
COOKIE: Final = "mallorn_oidc"
AWAY_SEC: Final = 600
SECRETS: Final = ("state", "nonce", "verifier")
#: Value of that cookie: secrets, then the digest of the page's text or `mallorn login`'s.
KEPT: Final = re.compile(
    r"(?P<state>[\w-]+)\.(?P<nonce>[\w-]+)\.(?P<verifier>[\w-]+)\."
    r"(?:(?P<page>[0-9a-f]{64})|(?P<port>[0-9]{4,5})\.(?P<challenge>[0-9a-f]{64})\.(?P<name>[A-Za-z0-9-]{1,100}))",
    re.ASCII,
)
REDIRECT: Final = HTTPStatus.SEE_OTHER
CODE_SEC: Final = 300.0  # includes the time in which the user confirms
KEY_DAYS: Final = 90.0  # the provider may sign the user in for less long
CONSENT: Final = """<!doctype html><html lang="en"><title>Mallorn</title>
<p>The command line of {name} asks for a key to this service as {owner}.
Continue only if you just typed <code>mallorn login</code>.</p>
<form action="http://127.0.0.1:{port}/"><input type="hidden" name="code" value="{code}">
<button>Give it a key</button></form></html>"""
NAME: Final = "^[A-Za-z0-9-]{1,100}$"
PORT_QUERY: Final = Query(ge=1024, le=65535, description="Port of `mallorn login` on loopback.")
CHALLENGE_QUERY: Final = Query(
    pattern="^[0-9a-f]{64}$", description="SHA-256 of a secret of `mallorn login`, in hex."
)
PAGE_QUERY: Final = Query(pattern="^[A-Za-z0-9_-]{32,200}$", description="Random text of the web page.")


def _open_provider(request: Request, provider: ProviderDep) -> Provider:
    """Return the provider. Raises NotFound if there is none, TooMany above the rate limit."""
    if provider is None:
        raise NotFound("this service has no identity provider", hint="set MALLORN_OIDC_ISSUER")
    address = request.client.host if request.client else "this client"
    provider.visits.count_request(address, address)
    return provider


OpenProvider = Annotated[Provider, Depends(_open_provider)]
router = APIRouter(prefix="/session/oidc", tags=["session"], route_class=browser_sessions.OnThePage)


@router.get("", status_code=REDIRECT, response_class=RedirectResponse)
def redirect_to_provider(
    request: Request,
    provider: OpenProvider,
    port: Annotated[int | None, PORT_QUERY] = None,
    challenge: Annotated[str | None, CHALLENGE_QUERY] = None,
    name: Annotated[str | None, Query(pattern=NAME, description="User and host that ask.")] = None,
    page: Annotated[str | None, PAGE_QUERY] = None,
) -> RedirectResponse:
    """Redirect to the identity provider, which redirects to `/session/oidc/callback`.

    `mallorn login` sends `port`, `challenge` and `name`, and gets a key in the end; the web
    page sends `page`.
    """
    if port and challenge and name:
        asking: tuple[str, ...] = (str(port), challenge, name)
    elif page:
        asking = (hash_for(Purpose.PAGE, page),)
    else:
        raise InvalidRequest("only the web page or `mallorn login` begins a sign-in", hint="open the page")
    secrets = {name: new_secret() for name in SECRETS}
    response = RedirectResponse(provider.login_url(_callback_url(request), **secrets), REDIRECT)
    # Secrets contain no dot and no character that a cookie must escape.
    # Lax: the browser returns by a navigation that another site started.
    cookie = ".".join((*secrets.values(), *asking))
    browser_sessions.set_cookie(request, response, COOKIE, cookie, AWAY_SEC, is_lax=True)
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
    # What the browser left with; None if its cookie is missing or malformed.
    cookie_values = KEPT.fullmatch(request.cookies.get(cookie_name(request, COOKIE), ""))
    if cookie_values is None or cookie_values["state"] != state:
        raise SignInRefused(
            "this sign-in was started in another browser, or too long ago", hint="sign in again"
        )
    if error or not code:
        reason = error[:200] or "the answer has no authorization code"
        raise SignInRefused(f"{provider.name} did not sign you in: {reason}", hint="sign in again")
    nonce, verifier = cookie_values["nonce"], cookie_values["verifier"]
    owner, scopes = provider.exchange_code_for_owner(code, _callback_url(request), nonce, verifier)
    response: Response
    with parts.database.transaction() as session:
        if Owners(session).is_banned(owner):
            if Owners(session).is_known(owner):  # else erased: store no name again
                detail = f"is banned; {provider.name} vouched for the owner"
                add_to_audit_entry(request, owner, detail)
            raise SignInRefused(f"{owner} is banned from this service", hint=READMIT_HINT)
        if cookie_values["page"]:
            claim = new_secret()
            page_digest = hash_for(Purpose.PAGE_SECRET, cookie_values["page"], claim)
            row = SessionRow(owner=owner, scopes=list(scopes), page_digest=page_digest)
            cookie = SignIns(session).create_session(row, browser_sessions.SIGNED_IN_SEC)
            url = f"{browser_sessions.web_page_url(request)}#session={claim}"
            response = RedirectResponse(url, REDIRECT)
            browser_sessions.set_session_cookie(request, response, cookie)
            add_to_audit_entry(request, owner, f"began a browser session by {provider.name}")
        else:
            login_code = LoginCode(owner=owner, scopes=list(scopes))
            challenge = cookie_values["challenge"]
            own_code = SignIns(session).create_code(login_code, CODE_SEC, challenge)
            words = {"owner": owner, "code": own_code, **cookie_values.groupdict("")}
            page = CONSENT.format_map({word: html.escape(text) for word, text in words.items()})
            response = HTMLResponse(page)
            add_to_audit_entry(request, owner, "got a code for mallorn login")
    response.delete_cookie(cookie_name(request, COOKIE), httponly=True, samesite="lax")
    return response


class CodeIn(BaseModel):
    """A code of `mallorn login`, and what proves that it is the caller's."""

    model_config = ConfigDict(extra="forbid")

    code: Annotated[str, Field(max_length=100, description="The code that the browser brought.")]
    verifier: Annotated[str, Field(max_length=100, description="The secret of which a digest was sent.")]
    name: Annotated[str, Field(pattern=NAME, description="Name of the key.")]


@router.post("/key", status_code=HTTPStatus.CREATED, dependencies=[Depends(_open_provider)])
def exchange_code(parts: PartsDep, request: Request, body: CodeIn | None = None) -> NewApiKey:
    """Exchange a code, once, for an API key with the scopes of the sign-in, valid for 90 days."""
    if body is None:
        message = "this service takes the code in the request's body, not in its address"
        raise InvalidRequest(message, hint="install its version of mallorn, then: mallorn login URL")
    with parts.database.transaction() as session:
        grant = SignIns(session).end_code(body.code, hash_secret(body.verifier))
        if grant is None:
            raise SignInRefused("this code is unknown or too old", hint="mallorn login URL")
        scopes = tuple(map(Scope, grant.scopes))
        key = ApiKeys(session).create(grant.owner, body.name, scopes, KEY_DAYS)
    add_key_to_audit_entry(request, key)
    return key


def _callback_url(request: Request) -> str:
    return f"{browser_sessions.web_page_url(request).rstrip('/')}{API}/session/oidc/callback"
