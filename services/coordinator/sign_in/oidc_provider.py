"""Client of an OpenID Connect provider: login URL, tokens and verified claims."""

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
from mallorn.core.installation import import_optional_module
from mallorn.core.settings import Settings
from mallorn.services.coordinator.sign_in.allow_list import EMAIL, AllowList
from mallorn.services.coordinator.web.quotas import RateLimit

KEPT_SEC: Final = 3600.0
AGAIN_SEC: Final = 10.0
Document = TypeVar("Document")
TIMEOUT_SEC: Final = 10.0
# Clocks may differ by five minutes; a token's nonce ties it to this sign-in.
LEEWAY_SEC: Final = 330
# Requests per client address in each coordinator; a sign-in takes two.
VISITS_PER_MINUTE: Final = 60
ALGORITHMS: Final = ("RS256", "ES256", "PS256")
Claims = dict[str, object]
Scopes = tuple[Scope, ...]
Reply = TypeVar("Reply", bound=BaseModel)


class ProviderMetadata(Generic[Document]):
    """Caches a JSON document of the provider; fetches it at most once per AGAIN_SEC."""

    def __init__(self, ask: Callable[[], Document], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = ask
        self._clock = clock
        self._lock = Lock()
        self._document: Document | None = None
        self._last_error: MallornError = Unavailable()
        self._fetched_sec = self._tried_sec = -math.inf

    def read(self, *, must_refetch: bool = False) -> Document:
        """Return the document, up to KEPT_SEC old; `must_refetch` refetches. Raises Unavailable."""
        with self._lock:
            if (must_refetch or not self._is_fresh()) and self._clock() - self._tried_sec >= AGAIN_SEC:
                try:
                    self._document, self._fetched_sec = self._fetch(), self._clock()
                except MallornError as error:
                    self._last_error = error
                finally:
                    self._tried_sec = self._clock()
            if self._document is not None and self._is_fresh():
                return self._document
            raise Unavailable(self._last_error.message, hint=self._last_error.hint)

    def _is_fresh(self) -> bool:
        return self._clock() - self._fetched_sec < KEPT_SEC


class Discovery(BaseModel):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class Tokens(BaseModel):
    id_token: str = ""


class KeySet(BaseModel):
    keys: list[dict[str, object]]


class SignInRefused(Unauthorized):
    """The identity provider did not identify the user."""


class Provider:
    """The configured provider; its metadata and keys are fetched when a user signs in."""

    def __init__(self, settings: Settings) -> None:
        """Raises InvalidRequest for an empty or malformed allow-list."""
        self.issuer = settings.oidc_issuer.rstrip("/")
        self._client_id = settings.oidc_client_id
        self._client_secret = settings.oidc_client_secret.get_secret_value()
        self._claim = settings.oidc_claim  # of an ID token; it names the owner
        self._allow_list = AllowList.of(settings)
        self.visits = RateLimit(VISITS_PER_MINUTE)
        self._description = ProviderMetadata(self._fetch_discovery)
        self._keys = ProviderMetadata(lambda: self._ask("GET", self._description.read().jwks_uri, KeySet))

    @property
    def name(self) -> str:
        return urlsplit(self.issuer).netloc

    def login_url(self, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Return the provider's login URL. Raises Unavailable if it cannot be reached."""
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": "openid email profile",
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        return f"{self._description.read().authorization_endpoint}?{urlencode(query)}"

    def exchange_code_for_owner(
        self, code: str, redirect_uri: str, nonce: str, verifier: str
    ) -> tuple[str, Scopes]:
        """Exchange a code for the owner and their scopes. Raises SignInRefused or Unavailable."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        auth = self._client_id, self._client_secret
        url = self._description.read().token_endpoint
        tokens = self._ask("POST", url, Tokens, data=form, auth=auth)
        jwt = import_optional_module("joserfc.jwt", "OIDC", "fleet")
        errors = import_optional_module("joserfc.errors", "OIDC", "fleet")
        rules = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_SEC,
            iss={"essential": True, "value": self._description.read().issuer},
            aud={"essential": True, "value": self._client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            claims = self._decode_token(tokens.id_token)
            rules.validate(claims)
        except (errors.JoseError, ValueError) as error:
            raise SignInRefused(
                f"{self.name} sent an invalid token: {error}", hint="sign in again"
            ) from error
        owner = claims.get(self._claim)
        if not isinstance(owner, str) or not owner:
            raise SignInRefused(f"{self.name} sent no claim `{self._claim}`", hint="set MALLORN_OIDC_CLAIM")
        if self._claim == EMAIL and claims.get("email_verified") is not True:
            raise SignInRefused(f"{self.name} has not verified the address {owner}", hint="verify it there")
        if not (scopes := self._allow_list.scopes(owner, claims)):
            raise SignInRefused(f"{owner} is not on the allow-list", hint="ask an admin to add you")
        return owner, scopes

    def _fetch_discovery(self) -> Discovery:
        url = f"{self.issuer}/.well-known/openid-configuration"
        discovery = self._ask("GET", url, Discovery)
        if discovery.issuer.rstrip("/") != self.issuer:
            raise Unavailable(f"{self.issuer} names another issuer", hint="check MALLORN_OIDC_ISSUER")
        return discovery

    def _decode_token(self, token: str) -> Claims:
        """Decode a token with the cached keys, or with refetched ones after a key rotation."""
        jwk, jwt, errors = (
            import_optional_module(f"joserfc.{name}", "OIDC", "fleet") for name in ("jwk", "jwt", "errors")
        )

        def decode_with_keys(keys: KeySet) -> Claims:
            key_set = jwk.KeySet.import_key_set(keys.model_dump())
            return dict(jwt.decode(token, key_set, algorithms=list(ALGORITHMS)).claims)

        try:
            return decode_with_keys(self._keys.read())
        except (errors.JoseError, ValueError):
            return decode_with_keys(self._keys.read(must_refetch=True))

    def _ask(self, method: str, url: str, kind: type[Reply], **arguments: Any) -> Reply:
        try:
            response = httpx.request(method, url, timeout=TIMEOUT_SEC, **arguments)
            body = response.json()
            if response.is_error or not isinstance(body, dict):
                fields = body if isinstance(body, dict) else {}
                words = fields.get("error_description") or fields.get("error") or "no reason was given"
                reason = body if isinstance(body, str) else str(words)[:200]
                raise SignInRefused(f"{self.name} refused: {reason}")
            return kind.model_validate(body)
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            problem: object = error
            if isinstance(error, ValidationError):  # field and message, but without the value
                first = error.errors(include_input=False)[0]
                problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            message = f"{self.name} does not answer as an identity provider: {problem}"
            raise Unavailable(message, hint=f"curl {url}") from error


def get_provider(request: Request) -> Provider | None:
    provider: Provider | None = request.app.state.provider
    return provider


ProviderDep = Annotated[Provider | None, Depends(get_provider)]
