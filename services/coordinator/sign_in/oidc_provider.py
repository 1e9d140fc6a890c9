"""An OpenID Connect provider: where it sends browsers, and what it says of who came back."""

import base64
import hashlib
import math
import time
from collections.abc import Callable
from threading import Lock
from typing import Annotated, Any, Final, Generic, TypeVar
from urllib.parse import urlencode, urlsplit

import httpx
from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from mallorn.core.api_keys import Scope
from mallorn.core.errors import MallornError, Unauthorized, Unavailable
from mallorn.core.install_command import need
from mallorn.core.settings import Settings
from services.coordinator.sign_in.allow_list import EMAIL, AllowList
from services.coordinator.web.rate_limit import RateLimit

KEPT_SEC: Final = 3600.0
AGAIN_SEC: Final = 10.0
Document = TypeVar("Document")


class ProviderMetadata(Generic[Document]):
    """One document. It is asked for by one visit at a time, and never again within AGAIN_SEC."""

    def __init__(self, ask: Callable[[], Document], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = Lock()
        self._document: Document | None = None
        self._why_not: MallornError = Unavailable()
        self._got_sec = self._asked_sec = -math.inf

    def read(self, *, anew: bool = False) -> Document:
        """The document, at most KEPT_SEC old; `anew` asks again, if that was not just done.

        Raises Unavailable.
        """
        with self._lock:
            if (anew or not self._good()) and self._clock() - self._asked_sec >= AGAIN_SEC:
                try:
                    self._document, self._got_sec = self._ask(), self._clock()
                except MallornError as error:
                    self._why_not = error
                finally:
                    self._asked_sec = self._clock()
            if self._document is not None and self._good():
                return self._document
            raise Unavailable(self._why_not.message, hint=self._why_not.hint)

    def _good(self) -> bool:
        return self._clock() - self._got_sec < KEPT_SEC


TIMEOUT_SEC: Final = 10.0
# Two clocks may be five minutes apart; what makes a token fresh is its nonce, of this sign-in alone.
LEEWAY_SEC: Final = 330
# Of one address, in each coordinator; a sign-in takes two.
VISITS_PER_MINUTE: Final = 60
ALGORITHMS: Final = ("RS256", "ES256", "PS256")
Claims = dict[str, object]
Scopes = tuple[Scope, ...]
Said = TypeVar("Said", bound=BaseModel)


class Discovery(BaseModel):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class Tokens(BaseModel):
    id_token: str = ""


class KeySet(BaseModel):
    keys: list[dict[str, object]]


class Refused(Unauthorized):
    """The identity provider did not say who this is."""


class Provider:
    """As the settings name it. Its own description and its keys are asked for when somebody signs in."""

    def __init__(
        self, issuer: str, client_id: str, client_secret: str, claim: str, allowed: AllowList
    ) -> None:
        """`claim` is the one that names the owner."""
        self.issuer = issuer.rstrip("/")
        self._client_id = client_id
        self._client_secret = client_secret
        self._claim = claim
        self._allowed = allowed
        self.visits = RateLimit(VISITS_PER_MINUTE)
        self._description = ProviderMetadata(self._describe)
        self._keys = ProviderMetadata(lambda: self._ask("GET", self._description.read().jwks_uri, KeySet))

    @classmethod
    def of(cls, settings: Settings) -> "Provider | None":
        """None where no issuer is set. Raises InvalidRequest where one is and nobody is allowed."""
        if not settings.oidc_issuer:
            return None
        secret, allowed = settings.oidc_client_secret.get_secret_value(), AllowList.of(settings)
        return cls(settings.oidc_issuer, settings.oidc_client_id, secret, settings.oidc_claim, allowed)

    @property
    def name(self) -> str:
        return urlsplit(self.issuer).netloc

    def address(self, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Where to send a browser. Raises Unavailable."""
        digest = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": "openid email profile",
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        return f"{self._description.read().authorization_endpoint}?{urlencode(asked)}"

    def person(self, code: str, redirect_uri: str, nonce: str, verifier: str) -> tuple[str, Scopes]:
        """Return the owner who came back with this code, and their scopes. Raises Refused, Unavailable."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        known = self._client_id, self._client_secret
        said = self._ask("POST", self._description.read().token_endpoint, Tokens, data=form, auth=known)
        claims = self._checked(said.id_token, nonce)
        owner = claims.get(self._claim)
        if not isinstance(owner, str) or not owner:
            raise Refused(f"{self.name} does not tell `{self._claim}`", hint="set MALLORN_OIDC_CLAIM")
        if self._claim == EMAIL and claims.get("email_verified") is not True:
            raise Refused(f"{self.name} has not verified the address {owner}", hint="verify it there")
        if not (scopes := self._allowed.scopes(owner, claims)):
            raise Refused(
                f"{owner} is on no list of this service", hint="ask an admin of it for an invitation"
            )
        return owner, scopes

    def _describe(self) -> Discovery:
        described = self._ask("GET", f"{self.issuer}/.well-known/openid-configuration", Discovery)
        if described.issuer.rstrip("/") != self.issuer:
            raise Unavailable(f"{self.issuer} describes another issuer", hint="check MALLORN_OIDC_ISSUER")
        return described

    def _checked(self, token: str, nonce: str) -> Claims:
        """The claims of a token that the issuer signed for us, for this sign-in, and not long ago."""
        jwt, errors = (need(f"joserfc.{name}", "OIDC", "oidc") for name in ("jwt", "errors"))
        rules = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_SEC,
            iss={"essential": True, "value": self._description.read().issuer},
            aud={"essential": True, "value": self._client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            claims = self._read(token)
            rules.validate(claims)
        except (errors.JoseError, ValueError) as error:
            raise Refused(f"{self.name} sent no good token: {error}", hint="sign in again") from error
        return claims

    def _read(self, token: str) -> Claims:
        """What a token claims, by the keys that we have, or by newer ones: providers change them."""
        jwk, jwt, errors = (need(f"joserfc.{name}", "OIDC", "oidc") for name in ("jwk", "jwt", "errors"))

        def claims(keys: KeySet) -> Claims:
            known = jwk.KeySet.import_key_set(keys.model_dump())
            return dict(jwt.decode(token, known, algorithms=list(ALGORITHMS)).claims)

        try:
            return claims(self._keys.read())
        except (errors.JoseError, ValueError):
            return claims(self._keys.read(anew=True))

    def _ask(self, method: str, url: str, kind: type[Said], **given: Any) -> Said:
        try:
            answer = httpx.request(method, url, timeout=TIMEOUT_SEC, **given)
            said = answer.json()
            if answer.is_error or not isinstance(said, dict):
                raise Refused(f"{self.name} refused: {said if isinstance(said, str) else _why(said)}")
            return kind.model_validate(said)
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            why = _unlike(error) if isinstance(error, ValidationError) else error
            raise Unavailable(
                f"{self.name} does not answer as an identity provider: {why}", hint=f"curl {url}"
            ) from error


def get_provider(request: Request) -> Provider | None:
    provider: Provider | None = request.app.state.provider
    return provider


ProviderDep = Annotated[Provider | None, Depends(get_provider)]


def _unlike(error: ValidationError) -> str:
    """The field, and nothing of what it holds: it may be a secret."""
    first = error.errors(include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _why(said: Any) -> str:
    told = said if isinstance(said, dict) else {}
    return str(told.get("error_description") or told.get("error") or "it gave no reason")[:200]
