"""An OpenID Connect provider: where it sends browsers, and what it says of who came back."""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpx

from mallorn.core.errors import Unauthorized, Unavailable
from mallorn.core.extras import need
from mallorn.core.settings import Settings

TIMEOUT_SEC: Final = 10.0
LEEWAY_SEC: Final = 60
ALGORITHMS: Final = ("RS256", "ES256", "PS256")
EMAIL: Final = "email"


class Refused(Unauthorized):
    """The identity provider did not say who this is."""


@dataclass(frozen=True, slots=True)
class Provider:
    """As the settings name it. Its own description is asked for when somebody signs in."""

    issuer: str
    client_id: str
    client_secret: str
    claim: str  # that names the owner

    @classmethod
    def of(cls, settings: Settings) -> "Provider | None":
        """None where no issuer is set."""
        if not settings.oidc_issuer:
            return None
        secret = settings.oidc_client_secret.get_secret_value()
        return cls(settings.oidc_issuer.rstrip("/"), settings.oidc_client_id, secret, settings.oidc_claim)

    @property
    def name(self) -> str:
        """As people know it."""
        return urlsplit(self.issuer).netloc

    def address(self, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Where to send a browser. Raises Unavailable."""
        digest = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "scope": "openid email profile",
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        return f"{self._described()['authorization_endpoint']}?{urlencode(asked)}"

    def owner(self, code: str, redirect_uri: str, nonce: str, verifier: str) -> str:
        """Who came back with this code. Raises Refused, Unavailable."""
        described = self._described()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        known = self.client_id, self.client_secret
        said = self._ask("POST", described["token_endpoint"], data=form, auth=known)
        claims = self._checked(str(said.get("id_token", "")), described, nonce)
        return self._named(claims)

    def _described(self) -> dict[str, Any]:
        described = self._ask("GET", f"{self.issuer}/.well-known/openid-configuration")
        if str(described.get("issuer", "")).rstrip("/") != self.issuer:
            raise Unavailable(f"{self.issuer} describes another issuer", hint="check MALLORN_OIDC_ISSUER")
        return described

    def _checked(self, token: str, described: dict[str, Any], nonce: str) -> dict[str, Any]:
        """The claims of a token that the issuer signed for us, for this sign-in, and not long ago."""
        jwk, jwt, errors = (need(f"joserfc.{name}", "OIDC", "oidc") for name in ("jwk", "jwt", "errors"))
        rules = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_SEC,
            iss={"essential": True, "value": described["issuer"]},
            aud={"essential": True, "value": self.client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            keys = jwk.KeySet.import_key_set(self._ask("GET", described["jwks_uri"]))
            found = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
            rules.validate(found.claims)
        except (errors.JoseError, ValueError) as error:
            raise Refused(f"{self.name} sent no good token: {error}", hint="sign in again") from error
        return dict(found.claims)

    def _named(self, claims: dict[str, Any]) -> str:
        owner = claims.get(self.claim)
        if not isinstance(owner, str) or not owner:
            raise Refused(f"{self.name} does not tell `{self.claim}`", hint="set MALLORN_OIDC_CLAIM")
        if self.claim == EMAIL and claims.get("email_verified") is not True:
            raise Refused(f"{self.name} has not verified the address {owner}", hint="verify it there")
        return owner

    def _ask(self, method: str, url: str, **given: Any) -> dict[str, Any]:
        try:
            answer = httpx.request(method, url, timeout=TIMEOUT_SEC, **given)
            said = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise Unavailable(
                f"{self.name} does not answer as an identity provider: {error}", hint=f"curl {url}"
            ) from error
        if answer.is_error or not isinstance(said, dict):
            raise Refused(f"{self.name} refused: {said if isinstance(said, str) else _why(said)}")
        return said


def _why(said: Any) -> str:
    told = said if isinstance(said, dict) else {}
    return str(told.get("error_description") or told.get("error") or "it gave no reason")[:200]
