"""`python -m tests.contract.credentials FILE` writes which credentials each route admits; a test compares it.

Every route of the API's description is asked with every kind of credential, also where another is expected.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from sqlalchemy import select, update

from mallorn.core.api_keys import (
    ALL_SCOPES,
    USUAL_SCOPES,
    OwnerAction,
    Scope,
    allows,
    hash_secret,
    new_secret,
)
from mallorn.core.settings import Settings
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.access_control import ApiKeys, apply_owner_action
from mallorn.db.tables import ApiKeyRow, LoginCode, SessionRow
from mallorn.services.coordinator.app import create_app
from mallorn.services.coordinator.web.authenticator import SCOPES
from tests.fixtures.coordinator import PAGE, Coordinator, running
from tests.fixtures.issuer import CLIENT, SECRET, Issuer, issuing

REFUSED: Final = frozenset({401, 403})
#: Parameters of paths that are no ids.
UNKNOWN: Final = {"action": "ban", "index": "0", "digest": "0" * 64}


@dataclass(frozen=True)
class Kind:
    """A credential as a request presents it, and the scopes that it should have; none if it is refused."""

    name: str
    headers: Mapping[str, str]
    scopes: tuple[Scope, ...] = ()


class Collection:
    """Makes a credential of each kind in a service with an identity provider."""

    def __init__(self, coordinator: Coordinator, issuer: Issuer) -> None:
        self.coordinator = coordinator
        self.issuer = issuer
        self.cookie_name = f"mallorn_session_{httpx.URL(coordinator.url).port}"

        self.kinds = tuple(self._make_all())

    def _make_all(self) -> Iterator[Kind]:
        yield Kind("no credential", {})
        keys = {scope: self.coordinator.new_key("ada", scope).key for scope in Scope}
        for scope, key in keys.items():
            yield Kind(f"API key, {scope}", bearer(key), (scope,))
        yield Kind("API key of the settings", bearer("settings key"), ALL_SCOPES)
        yield from self._sessions(keys)
        yield from self._codes()
        yield from self._ended()
        admin = keys[Scope.ADMIN]
        yield from self._elsewhere("API key, admin, as a cookie", None, admin)
        yield from self._elsewhere("digest of an API key, admin", hash_secret(admin), hash_secret(admin))
        yield from self._elsewhere("id of an API key, admin", admin.split("_")[1], admin.split("_")[1])
        with self.coordinator.database.session() as session:
            rows = session.scalars(select(SessionRow)).first(), session.scalars(select(LoginCode)).first()
        for row in rows:
            assert row is not None
            name = f"digest in {type(row).__tablename__}"
            yield from self._elsewhere(name, row.digest, row.digest)

    def _sessions(self, keys: Mapping[Scope, str]) -> Iterator[Kind]:
        for scope in Scope:
            cookie = self.sign_in(keys[scope])
            yield Kind(f"session by an API key, {scope}", self.browser(cookie, PAGE), (scope,))
        yield Kind("session by an API key, admin, without the page's secret", self.browser(cookie))
        yield Kind("session by an API key, admin, with another secret", self.browser(cookie, PAGE[::-1]))
        yield from self._elsewhere("session's cookie", cookie, None)
        yield from self._elsewhere("page's secret", PAGE, PAGE)
        cookie = self.sign_in("settings key")
        yield Kind("session by an API key of the settings", self.browser(cookie, PAGE), ALL_SCOPES)
        cookie, secret = self.sign_in_at_provider("ada@example.org")
        yield Kind("session by the identity provider", self.browser(cookie, secret), USUAL_SCOPES)
        yield Kind("session by the identity provider, without the page's secret", self.browser(cookie))
        yield Kind("session by the identity provider, with the page's half", self.browser(cookie, PAGE))

    def _codes(self) -> Iterator[Kind]:
        verifier = new_secret()
        query = {"port": 2000, "challenge": hash_secret(verifier), "name": "x"}
        with self.client() as client:
            self.issuer.claims["email"] = "ada@example.org"
            there = client.get("/session/oidc", params=query).headers["Location"]
            temporary = client.cookies[self.cookie_name.replace("session", "oidc")]
            page = client.get(httpx.get(there, verify=False).headers["Location"]).text
        (code,) = re.findall(r'value="([^"]+)"', page)
        yield from self._elsewhere("code of mallorn login", code, code)
        yield from self._elsewhere("verifier of mallorn login", verifier, verifier)
        yield from self._elsewhere("challenge of mallorn login", hash_secret(verifier), hash_secret(verifier))
        yield from self._elsewhere("temporary cookie of a sign-in", temporary, temporary)

    def _ended(self) -> Iterator[Kind]:
        new, ask = self.coordinator.new_key, self.coordinator.ask
        revoked, expired, banned, rotated = (
            new(name, Scope.ADMIN) for name in ("bob", "bob", "carl", "dora")
        )
        cookies = {key.id: self.sign_in(key.key) for key in (revoked, expired, banned, rotated)}
        fresh = ask(rotated.key, "POST", f"/keys/{rotated.id}/rotate", params={"grace_minutes": 60}).json()[
            "key"
        ]
        yield Kind("API key, admin, rotated, in its grace period", bearer(rotated.key), ALL_SCOPES)
        yield Kind("session by that key", self.browser(cookies[rotated.id], PAGE), ALL_SCOPES)
        again = new("dora", Scope.ADMIN)
        cookie = self.sign_in(again.key)
        ask(again.key, "POST", f"/keys/{again.id}/rotate")
        yield Kind("API key, admin, rotated", bearer(again.key))
        yield Kind("session by the secret before a rotation", self.browser(cookie, PAGE))
        yield Kind("API key, admin, new secret", bearer(fresh), ALL_SCOPES)
        provider = self.sign_in_at_provider("mona@example.org")
        with self.coordinator.database.transaction() as session:
            ApiKeys(session).revoke(revoked.id)
            session.execute(update(ApiKeyRow).where(ApiKeyRow.id == expired.id).values(expires_at=1.0))
        for owner in ("carl", "mona@example.org", "banned in settings"):
            apply_owner_action(self.coordinator.database, OwnerAction.BAN, owner)
        for name, key in (("revoked", revoked), ("expired", expired), ("of a banned owner", banned)):
            yield Kind(f"API key, admin, {name}", bearer(key.key))
            yield Kind(f"session by an API key, admin, {name}", self.browser(cookies[key.id], PAGE))
        yield Kind("API key of the settings, of a banned owner", bearer("banned key"))
        yield Kind("session by the identity provider, of a banned owner", self.browser(*provider))

    def _elsewhere(self, name: str, as_key: str | None, as_cookie: str | None) -> Iterator[Kind]:
        """A value where another is expected."""
        if as_key is not None:
            yield Kind(f"{name}, as an API key", bearer(as_key))
        if as_cookie is not None:
            yield Kind(f"{name}, as a session's cookie", self.browser(as_cookie, PAGE))

    def client(self) -> httpx.Client:
        """A browser of its own."""
        return httpx.Client(base_url=f"{self.coordinator.url}/api/v1", verify=False)

    def browser(self, cookie: str, secret: str | None = None) -> dict[str, str]:
        return {"Cookie": f"{self.cookie_name}={cookie}"} | ({"X-Mallorn-Session": secret} if secret else {})

    def sign_in(self, key: str) -> str:
        with self.client() as client:
            answer = client.post("/session", headers=bearer(key))
            return str(answer.cookies[self.cookie_name])

    def sign_in_at_provider(self, address: str) -> tuple[str, str]:
        self.issuer.claims["email"] = address
        with self.client() as client:
            there = client.get("/session/oidc", params={"page": PAGE}).headers["Location"]
            answer = client.get(httpx.get(there, verify=False).headers["Location"])
            claim = httpx.URL(answer.headers["Location"]).fragment.removeprefix("session=")
            return str(answer.cookies[self.cookie_name]), f"{PAGE}.{claim}"


def bearer(key: str) -> dict[str, str]:
    """Headers of a key; only signing in reads the page's secret."""
    return {"Authorization": f"Bearer {key}", "X-Mallorn-Session": PAGE}


#: The kinds that each operation admits, by its name; an open one admits all.
Table = dict[str, list[str]]


@contextmanager
def collected(directory: Path) -> Iterator[Collection]:
    """A service with an identity provider and settings' keys, in this directory."""
    url = f"sqlite:///{directory / 'mallorn.db'}"
    upgrade(url)
    keys = {"ops": hash_secret("settings key"), "banned in settings": hash_secret("banned key")}
    known = {"database_url": url, "redis_url": "memory://", "data_dir": directory, "api_keys": keys}
    with issuing() as issuer:
        provider = {"oidc_issuer": issuer.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
        with running(Settings(**known, **provider, oidc_allowed=["@example.org"])) as coordinator:
            coordinator.parts.stopping.set()  # streams of events end at once
            yield Collection(coordinator, issuer)


def routes(coordinator: Coordinator) -> dict[str, Set[Scope] | None]:
    """Return each operation's scopes; None if it is open."""
    paths = create_app(coordinator.parts.settings).openapi()["paths"]
    named = {
        f"{method.upper()} {path}": operation
        for path, each in paths.items()
        for method, operation in each.items()
    }
    return {name: frozenset(map(Scope, op[SCOPES])) if SCOPES in op else None for name, op in named.items()}


def ask_all(collection: Collection, share: int = 1) -> tuple[Table, Table]:
    """Return the admitted kinds of each operation: those that should be, and those that are.

    Of all pairs, one in `share` is asked; the others are in neither table.
    """
    wanted: Table = {}
    found: Table = {}
    with collection.client() as client:
        for number, (name, scopes) in enumerate(routes(collection.coordinator).items()):
            if scopes is None:
                continue
            asked = [kind for place, kind in enumerate(collection.kinds) if (number + place) % share == 0]
            should = [kind for kind in asked if any(allows(kind.scopes, scope) for scope in scopes)]
            wanted[name] = [kind.name for kind in should]
            found[name] = [kind.name for kind in asked if is_admitted(client, name, kind)]
    return wanted, found


def is_admitted(client: httpx.Client, operation: str, kind: Kind) -> bool:
    method, path = operation.split(" ")
    path = re.sub(r"{(\w+)}", lambda match: UNKNOWN.get(match[1], "1"), path)
    client.cookies.clear()
    url = client.base_url.copy_with(path=path)
    return client.request(method, url, headers=dict(kind.headers)).status_code not in REFUSED


def document(collection: Collection, admits: Table) -> dict[str, object]:
    """Return what is stored: all kinds, what is open to everybody, and what each other operation admits."""
    open_to_all = [name for name, scopes in routes(collection.coordinator).items() if scopes is None]
    return {"kinds": [kind.name for kind in collection.kinds], "open": open_to_all, "admits": admits}


def main() -> None:
    """Write the answers of a service to the file that was named."""
    with tempfile.TemporaryDirectory() as directory, collected(Path(directory)) as collection:
        answers = document(collection, ask_all(collection)[1])
    Path(sys.argv[1]).write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
