"""One credential is one kind: no code, session or digest is accepted where another is expected."""

from collections.abc import Iterator

import httpx
import pytest

from mallorn.core.api_keys import Scope, hash_secret
from mallorn.db.repositories.access_control import ApiKeys
from tests.fixtures.coordinator import PAGE, Coordinator, Start
from tests.fixtures.issuer import CLIENT, SECRET, issuing

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def with_provider(start: Start) -> Iterator[Coordinator]:
    with issuing() as issuer:
        known = {"oidc_issuer": issuer.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
        yield start(**known, oidc_allowed=["@example.org"])


def session_cookie(coordinator: Coordinator) -> str:
    return f"mallorn_session_{httpx.URL(coordinator.url).port}"


def test_no_caller_gets_a_session_by_the_digest_of_anothers_key(coordinator: Coordinator) -> None:
    """N1: a key of scope `read` chose the digest of an admin's key as the challenge of its code."""
    admin, reader = coordinator.new_key("alice"), coordinator.new_key("eve", Scope.READ)
    query = {"port": 1024, "challenge": hash_secret(admin.key)}
    answer = coordinator.ask(reader.key, "POST", "/session/oidc/code", params=query)
    code = httpx.URL(answer.headers.get("Location", "")).params.get("code", "none")
    cookies = {session_cookie(coordinator): code}
    browser = httpx.Client(base_url=f"{coordinator.url}/api/v1", cookies=cookies, verify=False)
    for method, path in (("GET", "/jobs"), ("GET", "/audit"), ("POST", "/keys")):
        given = browser.request(method, path, json={"name": "x"})
        assert given.status_code == 401, path
    assert answer.status_code == 404, "no provider is configured"
    with coordinator.database.session() as session:
        assert {key.id for key in ApiKeys(session).list()} == {admin.id, reader.id}


def test_a_browser_session_and_its_key_make_no_new_key(with_provider: Coordinator) -> None:
    """N2: a key of 14 minutes minted one of 90 days, which outlived its revocation."""
    key = with_provider.new_key("ada", Scope.READ, days=0.01)
    page = {"X-Mallorn-Session": "p" * 43, "Authorization": f"Bearer {key.key}"}
    cookie = with_provider.http.post("/session", headers=page).cookies[session_cookie(with_provider)]
    exchange = {"code": cookie, "verifier": key.key, "name": "x"}
    for given in ({"params": exchange}, {"json": exchange}):
        assert with_provider.http.post("/session/oidc/key", **given).status_code in (401, 422)
    with with_provider.database.session() as session:
        assert [row.id for row in ApiKeys(session).list()] == [key.id]


def test_a_key_is_not_exchanged_for_a_lasting_one(with_provider: Coordinator) -> None:
    """N2 without a confusion: a key made a code of its own, and a key of 90 days from it."""
    key = with_provider.new_key("ada", Scope.READ, days=0.01)
    query = {"port": 1024, "challenge": hash_secret("own verifier")}
    sent = with_provider.ask(key.key, "POST", "/session/oidc/code", params=query)
    code = httpx.URL(sent.headers.get("Location", "")).params.get("code", "none")
    exchange = {"code": code, "verifier": "own verifier", "name": "x"}
    for given in ({"params": exchange}, {"json": exchange}):
        assert with_provider.http.post("/session/oidc/key", **given).status_code in (401, 422)
    with with_provider.database.session() as session:
        assert [row.id for row in ApiKeys(session).list()] == [key.id]


def test_a_cookie_counts_only_with_the_secret_of_its_page(coordinator: Coordinator) -> None:
    """N11: a browser sends a cookie to each port of the host."""
    key = coordinator.new_key("ada").key
    cookies = {session_cookie(coordinator): coordinator.ask(key, "POST", "/session").cookies.popitem()[1]}
    for headers, status in (
        ({}, 401),
        ({"X-Mallorn-Session": PAGE[::-1]}, 401),
        ({"X-Mallorn-Session": PAGE}, 200),
    ):
        answer = httpx.get(f"{coordinator.url}/api/v1/jobs", cookies=cookies, headers=headers)
        assert answer.status_code == status, headers
    assert httpx.get(f"{coordinator.url}/api/v1/session", cookies=cookies).json()["owner"] is None


def test_a_sign_in_without_a_pages_secret_is_refused(coordinator: Coordinator) -> None:
    bearer = {"Authorization": f"Bearer {coordinator.new_key('ada').key}"}
    for secret in ({}, {"X-Mallorn-Session": "short"}):
        answer = httpx.post(f"{coordinator.url}/api/v1/session", headers={**bearer, **secret})
        assert (answer.status_code, answer.json()["hint"][:15]) == (401, "reload the page")
        assert "Set-Cookie" not in answer.headers


def test_a_sign_in_that_another_began_is_not_the_pages(with_provider: Coordinator) -> None:
    """Whoever sets cookies from another port, or sends a link, has one part of the secret at most."""
    query = {"page": PAGE[::-1]}
    there = httpx.get(with_provider.http.get("/session/oidc", params=query).headers["Location"], verify=False)
    answer = with_provider.land(with_provider.http.get(there.headers["Location"]))
    assert answer.headers["Location"].startswith(f"{with_provider.url}/#session=")
    assert with_provider.http.get("/jobs").status_code == 401, "the page has another random text"
    with_provider.http.headers["X-Mallorn-Session"] = PAGE[::-1]
    assert with_provider.http.get("/jobs").status_code == 401, "who began it has not seen the address"


def test_a_session_ends_with_the_secret_of_its_key_and_with_the_setting(start: Start) -> None:
    before = start(api_keys={"ops": hash_secret("old")})
    cookie = before.ask("old", "POST", "/session").cookies.popitem()[1]
    for keys, status in (({"ops": hash_secret("new")}, 401), ({"eve": hash_secret("old")}, 401)):
        later = start(api_keys=keys)
        later.http.cookies.set(session_cookie(later), cookie)
        assert later.http.get("/jobs").status_code == status
    rotated = before.new_key("ada")
    before.ask(rotated.key, "POST", "/session")
    assert before.http.get("/jobs").status_code == 200
    before.ask(rotated.key, "POST", f"/keys/{rotated.id}/rotate")
    assert before.http.get("/jobs").status_code == 401
