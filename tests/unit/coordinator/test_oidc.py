"""Signing in with an identity provider: whom it names, and what of it is not believed."""

import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from mallorn.core.api_keys import OwnerAction
from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import Settings
from mallorn.db.repositories.access_control import apply_owner_action
from mallorn.services.coordinator.app import create_app
from mallorn.services.coordinator.sign_in import oidc_provider as provider
from tests.fixtures.coordinator import PAGE, Coordinator, Start
from tests.fixtures.issuer import CLIENT, SECRET, Issuer, new_key

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def coordinator(start: Start, issuer: Issuer) -> Coordinator:
    known = {"oidc_issuer": issuer.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
    return start(**known, oidc_allowed=["@Example.org"], oidc_admins=["root@example.org"])


def sent_away(coordinator: Coordinator) -> str:
    """Where a browser is sent; the client keeps its cookies, as a browser does."""
    answer = coordinator.http.get("/session/oidc", params={"page": PAGE})
    assert answer.status_code == 303
    return str(answer.headers["Location"])


def come_back(coordinator: Coordinator) -> httpx.Response:
    """A browser goes there, and follows the provider's answer back."""
    there = httpx.get(sent_away(coordinator), verify=False)
    return coordinator.land(coordinator.http.get(there.headers["Location"]))


def test_nobody_comes_in_unknown_and_the_page_learns_who_signs_in(
    coordinator: Coordinator, issuer: Issuer
) -> None:
    assert coordinator.http.get("/jobs").status_code == 401
    session = coordinator.http.get("/session").json()
    assert session["requires_key"] is True
    assert session["provider"] == urlsplit(issuer.url).netloc


def test_who_was_named_is_signed_in_and_shown_the_page(coordinator: Coordinator) -> None:
    answer = come_back(coordinator)
    assert answer.status_code == 303, answer.text
    assert answer.headers["Location"].startswith(f"{coordinator.url}/#session=")
    cookies = answer.headers.get_list("Set-Cookie")
    cookie = next(each for each in cookies if each.startswith("mallorn_session"))
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    told = coordinator.http.get("/session").json()
    assert (told["owner"], told["scopes"]) == ("ada@example.org", ["read", "submit"])
    assert coordinator.http.get("/jobs").status_code == 200
    assert coordinator.http.post("/keys", json={"name": "x"}).status_code == 403


def test_admins_are_named_in_the_settings(coordinator: Coordinator, issuer: Issuer) -> None:
    issuer.claims["email"] = "root@example.org"
    come_back(coordinator)
    assert coordinator.http.post("/keys", json={"name": "x"}).status_code == 201


ADA = {"email": "Ada@Example.org", "email_verified": True}
USUAL = ["read", "submit"]
EVERYTHING = ["admin", "device", "read", "submit"]


@pytest.mark.parametrize(
    ("rules", "claims", "scopes"),
    [
        ({"oidc_allowed": ["ada@example.org"]}, ADA, USUAL),
        ({"oidc_allowed": ["@example.org"]}, ADA, USUAL),
        ({"oidc_allowed": ["bob@example.org"]}, ADA, None),
        ({"oidc_allowed": ["@ample.org", "@org", "example.org"]}, ADA, None),
        ({"oidc_allowed": ["@example.org"]}, ADA | {"email": "ada@example.org.evil.example"}, None),
        ({"oidc_allowed": ["@example.org"]}, ADA | {"email": "eve@example.org@evil.example"}, None),
        ({"oidc_allowed": ["@example.org"]}, ADA | {"email_verified": False}, None),
        ({"oidc_allowed": ["@example.org"]}, ADA | {"email_verified": "true"}, None),
        ({"oidc_groups": {"compilers": "read"}}, ADA | {"groups": ["compilers"]}, ["read"]),
        ({"oidc_groups": {"compilers": "read"}}, ADA | {"groups": "compilers"}, ["read"]),
        ({"oidc_groups": {"compilers": "read"}}, ADA | {"groups": ["Compilers", 7, None]}, None),
        ({"oidc_groups": {"compilers": "read"}}, ADA | {"roles": ["compilers"]}, None),
        (
            {"oidc_groups": {"a": "read", "b": "submit+device"}},
            ADA | {"groups": ["a", "b", "c"]},
            ["device", "read", "submit"],
        ),
        (
            {"oidc_groups": {"compilers": "read"}, "oidc_groups_claim": "roles"},
            ADA | {"roles": ["compilers"]},
            ["read"],
        ),
        ({"oidc_admins": ["ada@example.org"]}, ADA, EVERYTHING),
        (
            {"oidc_claim": "sub", "oidc_allowed": ["ada@example.org"]},
            {"sub": "ada@example.org"},
            None,  # whoever may choose a name at the provider could choose an address
        ),
        ({"oidc_claim": "sub", "oidc_admins": ["ada@example.org"]}, {"sub": "ada@example.org"}, None),
        ({"oidc_claim": "sub", "oidc_allowed": ["@example.org"]}, ADA | {"sub": "7"}, USUAL),
    ],
    ids=str,
)
def test_the_operators_list_says_who_comes_in_and_what_they_may_do(
    start: Start, issuer: Issuer, rules: dict[str, Any], claims: dict[str, Any], scopes: list[str] | None
) -> None:
    issuer.claims = claims
    known = {"oidc_issuer": issuer.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
    coordinator = start(**known, **rules)
    answer = come_back(coordinator)
    if scopes is None:
        assert answer.status_code == 401
        assert coordinator.http.get("/jobs").status_code == 401
    else:
        assert answer.status_code == 303, answer.text
        assert sorted(coordinator.http.get("/session").json()["scopes"]) == scopes


@pytest.mark.parametrize(
    ("rules", "hint"),
    [
        ({}, "MALLORN_OIDC_ALLOWED"),
        ({"oidc_allowed": ["@"]}, "@example.org"),
        ({"oidc_groups": {"compilers": "reed"}}, "compilers=read+submit"),
        ({"oidc_groups": {"": "compilers"}}, "read+submit"),
    ],
    ids=str,
)
def test_an_issuer_without_a_good_list_keeps_the_coordinator_from_starting(
    rules: dict[str, Any], hint: str, database_url: str
) -> None:
    settings = Settings(oidc_issuer="https://login.example.org", database_url=database_url, **rules)
    with pytest.raises(InvalidRequest) as refused:
        create_app(settings)
    assert hint in refused.value.hint


def test_who_was_put_out_is_not_signed_in_until_let_in_again(coordinator: Coordinator) -> None:
    owner = "ada@example.org"
    apply_owner_action(coordinator.database, OwnerAction.BAN, owner)
    answer = come_back(coordinator)
    assert (answer.status_code, answer.json()["detail"]) == (401, f"{owner} is banned from this service")
    assert coordinator.http.get("/jobs").status_code == 401
    apply_owner_action(coordinator.database, OwnerAction.READMIT, owner)
    assert come_back(coordinator).status_code == 303
    assert coordinator.http.get("/jobs").status_code == 200
    apply_owner_action(coordinator.database, OwnerAction.ERASE, owner)
    assert coordinator.http.get("/jobs").status_code == 401
    assert come_back(coordinator).status_code == 401


def test_another_claim_may_name_the_owner(start: Start, issuer: Issuer) -> None:
    issuer.claims = {"preferred_username": "ada"}
    known = {"oidc_issuer": issuer.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
    named = {"oidc_claim": "preferred_username", "oidc_allowed": ["ada"]}
    coordinator = start(**known, **named, url="http://127.0.0.1:1/mallorn/")
    there = sent_away(coordinator)
    redirect = parse_qs(urlsplit(there).query)["redirect_uri"][0]
    assert redirect == "http://127.0.0.1:1/mallorn/api/v1/session/oidc/callback", "as browsers reach it"
    back = httpx.get(there).headers["Location"]
    answer = coordinator.land(coordinator.http.get(f"/session/oidc/callback?{urlsplit(back).query}"))
    assert answer.headers["Location"].startswith("http://127.0.0.1:1/mallorn/#session=")
    assert coordinator.http.get("/session").json()["owner"] == "ada"


@pytest.mark.parametrize("ahead_sec", [-300, -5, 5, 300])
def test_a_provider_whose_clock_is_elsewhere_signs_people_in(
    coordinator: Coordinator, issuer: Issuer, ahead_sec: int
) -> None:
    theirs = int(time.time()) + ahead_sec
    issuer.claims |= {"iat": theirs, "nbf": theirs, "exp": theirs + 60}
    assert come_back(coordinator).status_code == 303
    assert coordinator.http.get("/jobs").status_code == 200


@pytest.mark.parametrize(
    ("lie", "word"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"aud": "another"}, "aud"),
        ({"iss": "http://another.example"}, "iss"),
        ({"exp": int(time.time()) - 3600}, "expired"),
        ({"email_verified": False}, "not verified"),
        ({"email": None}, "`email`"),
        ({"email": 7}, "`email`"),
    ],
)
def test_a_token_that_is_not_right_signs_nobody_in(
    coordinator: Coordinator, issuer: Issuer, lie: dict[str, Any], word: str
) -> None:
    issuer.claims |= lie
    answer = come_back(coordinator)
    assert answer.status_code == 401
    assert word in answer.json()["detail"]
    assert answer.json()["hint"]
    assert coordinator.http.get("/jobs").status_code == 401


def test_a_token_that_another_key_signed_signs_nobody_in(coordinator: Coordinator, issuer: Issuer) -> None:
    issuer.key = new_key()
    answer = come_back(coordinator)
    assert answer.status_code == 401
    assert "an invalid token" in answer.json()["detail"]


def test_a_code_is_good_in_the_browser_that_began_alone(coordinator: Coordinator) -> None:
    back = httpx.get(sent_away(coordinator), verify=False).headers["Location"]
    coordinator.http.cookies.clear()
    assert "started in another browser" in coordinator.http.get(back).json()["detail"]
    sent_away(coordinator)
    assert "started in another browser" in coordinator.http.get(back).json()["detail"]


@pytest.mark.parametrize(
    "cookie",
    ["", "{", "[" * 10_000, "1", '{"state":1}', '{"state":"x"}', "%ff%00"],
    ids=lambda text: text[:12],
)
def test_a_browser_that_brings_nonsense_did_not_begin_here(coordinator: Coordinator, cookie: str) -> None:
    port = coordinator.url.rpartition(":")[2]
    headers = {"Cookie": f"mallorn_oidc_{port}={cookie}; mallorn_refused_{port}={cookie}"}
    answer = coordinator.http.get("/session/oidc/callback?state=x&code=y", headers=headers)
    assert answer.status_code == 401
    assert "started in another browser" in answer.json()["detail"]
    assert coordinator.http.get("/session", headers=headers).status_code == 200


def test_a_provider_that_refuses_is_told_in_its_words(coordinator: Coordinator) -> None:
    state = parse_qs(urlsplit(sent_away(coordinator)).query)["state"][0]
    answer = coordinator.http.get("/session/oidc/callback", params={"state": state, "error": "access_denied"})
    assert answer.status_code == 401
    assert "access_denied" in answer.json()["detail"]


def test_a_provider_that_is_away_is_a_503(start: Start) -> None:
    coordinator = start(oidc_issuer="http://127.0.0.1:1", oidc_client_id=CLIENT, oidc_allowed=["ada"])
    answer = coordinator.http.get("/session/oidc", params={"page": PAGE})
    assert answer.status_code == 503
    assert "127.0.0.1:1" in answer.json()["detail"]
    assert answer.json()["hint"].startswith("curl ")


def test_a_description_that_is_none_is_a_503_that_names_the_field_and_not_its_value(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Issuer, "described", {"issuer": ["private"]})
    answer = coordinator.http.get("/session/oidc", params={"page": PAGE})
    assert answer.status_code == 503
    assert "issuer: " in answer.json()["detail"]
    assert "private" not in answer.text


def test_the_issuer_is_asked_once_for_what_it_publishes(coordinator: Coordinator, issuer: Issuer) -> None:
    for _ in range(3):
        assert come_back(coordinator).status_code == 303
    del issuer.asked["/authorize"]
    assert issuer.asked == {"/.well-known/openid-configuration": 1, "/keys": 1}


def test_an_issuers_new_key_is_fetched(
    coordinator: Coordinator, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "AGAIN_SEC", 600)
    come_back(coordinator)
    issuer.own_key = issuer.key = new_key("two")
    assert come_back(coordinator).status_code == 401, "it was asked a moment ago"
    monkeypatch.setattr(provider, "AGAIN_SEC", 0)
    assert come_back(coordinator).status_code == 303


def test_an_address_begins_so_many_sign_ins_a_minute(
    start: Start, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "VISITS_PER_MINUTE", 3)
    known = {"oidc_issuer": issuer.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
    coordinator = start(**known, oidc_allowed=["@example.org"])
    assert come_back(coordinator).status_code == 303
    there = sent_away(coordinator)
    back = httpx.get(there).headers["Location"]
    for path in (f"/session/oidc?page={PAGE}", back):
        answer = coordinator.http.get(path)
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) > 0


def test_a_refused_browser_comes_to_the_page_which_says_why(coordinator: Coordinator, issuer: Issuer) -> None:
    issuer.claims["email_verified"] = False
    there = httpx.get(sent_away(coordinator), verify=False)
    answer = coordinator.http.get(there.headers["Location"], headers={"Accept": "text/html,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{coordinator.url}/")
    assert "not verified" in coordinator.http.get("/session").json()["refusal"]
    issuer.claims["email_verified"] = True
    come_back(coordinator)
    told = coordinator.http.get("/session").json()
    assert (told["owner"], told["refusal"]) == ("ada@example.org", None)
    coordinator.http.delete("/session")
    assert coordinator.http.get("/session").json()["refusal"] is None


def test_where_none_is_set_up_there_is_none(start: Start) -> None:
    assert start().http.get("/session/oidc", params={"page": PAGE}).status_code == 404
