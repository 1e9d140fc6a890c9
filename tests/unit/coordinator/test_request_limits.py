"""What a request may cost: it is refused before it is read, and a client that dawdles is let go."""

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

import httpx
import pytest
import starlette.requests

from mallorn.core.api_keys import Scope, hash_secret
from mallorn.core.errors import TooMany
from mallorn.core.log_setup import LONGEST, JsonLines, TextLines
from mallorn.services.coordinator import health
from mallorn.services.coordinator.app import Coordinator as CoordinatorApp
from mallorn.services.coordinator.web import quotas
from mallorn.services.coordinator.web.quotas import MOST_BUCKETS, ConcurrentLimit, RateLimit
from mallorn.services.coordinator.web.request_limits import LARGEST_BODY, LARGEST_HEADERS, LONGEST_ADDRESS
from tests.fixtures.coordinator import PAGE, Coordinator, Start
from tests.fixtures.waiting import PATIENCE, wait_for

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One database does: nothing here is SQL."""
    return sqlite_url


class Endless:
    """A body that goes on until somebody has had enough of it."""

    def __init__(self) -> None:
        self.sent = 0

    def __iter__(self) -> Iterator[bytes]:
        while self.sent < 256 << 20:
            self.sent += 1 << 16
            yield b" " * (1 << 16)


def wire(coordinator: Coordinator) -> socket.socket:
    host, _, port = coordinator.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


@pytest.fixture
def guarded(start: Start) -> Coordinator:
    return start(api_keys={"ada": hash_secret("a key")})


def test_a_body_without_an_end_is_refused_at_the_limit(guarded: Coordinator) -> None:
    body = Endless()
    answer = guarded.ask("a key", "POST", "/jobs", content=iter(body))
    assert (answer.status_code, answer.json()["error"]) == (413, "TooLarge")
    assert body.sent < 64 << 20, "what the network holds, and no more"


def test_a_body_that_announces_too_much_is_refused_before_a_byte_is_sent(guarded: Coordinator) -> None:
    with wire(guarded) as client, client.makefile("rb") as answer:
        head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGEST_BODY + 1}\r\n\r\n"
        client.sendall(head.encode())
        assert answer.readline().startswith(b"HTTP/1.1 413")


def test_without_a_key_nothing_of_a_body_is_read(guarded: Coordinator) -> None:
    with wire(guarded) as client, client.makefile("rb") as answer:
        client.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        client.sendall(b"Content-Length: 1000\r\n\r\n")
        assert answer.readline().startswith(b"HTTP/1.1 401"), "though no byte of it was sent"
        assert b"connection: close" in answer.read().lower()


def test_beyond_its_rate_a_key_sends_no_body(start: Start) -> None:
    coordinator = start(api_keys={"ada": hash_secret("a key")}, quota_requests=1)
    assert coordinator.ask("a key", "GET", "/jobs").status_code == 200
    body = Endless()
    assert coordinator.ask("a key", "POST", "/jobs", content=iter(body)).status_code == 429
    admin = start(api_keys={"ada": hash_secret("a key")})
    assert admin.ask("a key", "GET", "/audit").json()["items"] == [], "nor does it fill the audit log"


@pytest.mark.parametrize("path", ["/jobs", "/models"])
def test_a_body_that_comes_byte_by_byte_ends_with_its_time(start: Start, path: str) -> None:
    impatient = start(api_keys={"ada": hash_secret("a key")}, client_wait_sec=0.2)
    method = "PUT" if path == "/models" else "POST"
    with wire(impatient) as client, client.makefile("rb") as answer:
        head = f"{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a key\r\n"
        client.sendall(f"{head}Content-Length: 1000\r\n\r\n ".encode())
        told = answer.read()
    assert told.startswith(b"HTTP/1.1 408")
    assert b"TooSlow" in told


def test_a_connection_on_which_no_request_comes_ends(start: Start) -> None:
    impatient = start(client_wait_sec=0.2)
    for begun in (b"", b"GET /healthz HT"):
        with wire(impatient) as client, client.makefile("rb") as answer:
            client.sendall(begun)
            assert answer.read() == b""
    with wire(impatient) as client, client.makefile("rb") as answer:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /heal")
        assert answer.readline().startswith(b"HTTP/1.1 ")
        assert answer.read().endswith(b"}"), "the second request never came"


def test_an_address_and_headers_have_an_end(coordinator: Coordinator) -> None:
    for given in (
        {"params": {"x": "a" * LONGEST_ADDRESS}},
        {"headers": {"X-Long": "a" * LARGEST_HEADERS}},
    ):
        answer = coordinator.http.get("/jobs", **given)  # type: ignore[arg-type]
        assert (answer.status_code, answer.json()["error"]) == (431, "HeadTooLarge")
        assert answer.json()["hint"]
        assert answer.headers["X-Frame-Options"] == "DENY"


def test_a_strange_body_is_answered_in_few_words(coordinator: Coordinator) -> None:
    many = {f"k{at}" * 20: 1 for at in range(1000)}
    answer = coordinator.http.post("/jobs", json=many)
    assert answer.status_code == 422
    assert "more" in answer.json()["detail"]
    assert len(answer.text) < 3000
    assert len(coordinator.http.get("/" + "a" * 9000).text) < 300


def test_an_access_line_is_cut() -> None:
    record = logging.LogRecord("uvicorn.access", logging.INFO, "", 0, "GET /%s", (":" * 100_000,), None)
    for lines in (TextLines("test"), JsonLines("test")):
        assert len(lines.format(record)) < LONGEST + 300


def test_two_services_on_one_host_do_not_sign_each_others_browsers_out(start: Start) -> None:
    one, other = (start(api_keys={"ada": hash_secret("a key")}) for _ in range(2))
    browser = httpx.Client(verify=False, headers={"X-Mallorn-Session": PAGE})
    for each in (one, other):
        headers = {"Authorization": "Bearer a key"}
        assert browser.post(f"{each.url}/api/v1/session", headers=headers).status_code == 201
    for each in (one, other):
        assert browser.get(f"{each.url}/api/v1/jobs").status_code == 200
    assert len(browser.cookies) == 2
    browser.close()


def test_cookies_that_python_reads_in_quadratic_time_are_not_read(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    read = starlette.requests.cookie_parser

    def remembered(text: str) -> dict[str, str]:
        seen.append(text)
        return read(text)

    monkeypatch.setattr(starlette.requests, "cookie_parser", remembered)
    strange = 'theirs=1; mallorn_session_1="' + '\\"' * 5000 + '"; mallorn_refused_1=a'
    assert coordinator.http.get("/session", headers={"Cookie": strange}).status_code == 200
    assert set(seen) == {"mallorn_refused_1=a"}


def test_uploads_count_against_the_quota_while_they_arrive(start: Start) -> None:
    coordinator = start(quota_model_bytes=150)
    with wire(coordinator) as client, client.makefile("rb") as answer:
        client.sendall(b"PUT /api/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf")
        wait_for(lambda: coordinator.parts.arriving.totals["local", ""] == 100, "the first upload to begin")
        second = coordinator.http.put("/models", content=b"b" * 100)
        assert (second.status_code, second.json()["hint"]) == (429, "mallorn models rm MODEL")
        client.sendall(b"a" * 96)
        assert answer.readline().startswith(b"HTTP/1.1 200")
    assert coordinator.http.put("/models", content=b"c" * 51).status_code == 429
    assert coordinator.http.put("/models", content=b"c" * 50).status_code == 200
    assert coordinator.parts.arriving.totals == {}


def test_whether_it_is_ready_is_looked_up_once_for_all_who_ask(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, may_answer = [], Event()
    look = health.check_readiness

    def slowly(parts: Any) -> Any:
        looks.append(1)
        may_answer.wait()
        return look(parts)

    monkeypatch.setattr(health, "check_readiness", slowly)
    with ThreadPoolExecutor(60) as pool:
        answers = [pool.submit(httpx.get, f"{coordinator.url}/readyz", timeout=PATIENCE) for _ in range(60)]
        try:
            wait_for(lambda: looks, "the first look")
            assert coordinator.http.get("/jobs").status_code == 200, "and they take no thread from others"
        finally:
            may_answer.set()
        assert {answer.result().status_code for answer in answers} == {200}
    assert len(looks) < 30


def test_the_document_of_the_api_is_encoded_once(
    guarded: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes 50 ms in the thread that serves everybody, and callers need no key for it."""
    first = guarded.ask(None, "GET", "/openapi.json")
    assert first.json()["openapi"]
    monkeypatch.setattr(CoordinatorApp, "openapi", lambda _: pytest.fail("it is encoded again"))
    assert guarded.ask(None, "GET", "/openapi.json").content == first.content


def test_an_owner_has_a_few_dear_answers_at_a_time(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator.parts.few, "limit", 1)
    with coordinator.parts.few.count_request("local"):
        for path in ("/dataset/stats", "/jobs/nope/report", "/jobs/nope/schedules"):
            answer = coordinator.http.get(path)
            assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1"), path
    assert coordinator.http.get("/dataset/stats").status_code == 200


def test_a_concurrent_limit_counts_each_owner() -> None:
    few = ConcurrentLimit(quotas.MOST_AT_ONCE, "slow requests")
    entered, leave = Event(), Event()

    def hold() -> None:
        with few.count_request("ada"):
            entered.set()
            leave.wait()

    holders = [Thread(target=hold) for _ in range(quotas.MOST_AT_ONCE)]
    for holder in holders:
        holder.start()
    wait_for(lambda: few.totals["ada", ""] == quotas.MOST_AT_ONCE, "all to have come")
    with pytest.raises(TooMany), few.count_request("ada"):
        pass
    with few.count_request("bob"):
        leave.set()
    for holder in holders:
        holder.join()
    assert few.totals == {}


def test_buckets_of_addresses_without_end_are_as_many_as_they_may_be() -> None:
    rates = RateLimit(1)
    for number in range(MOST_BUCKETS + 50):
        rates.count_request(number, "somebody")
    assert len(rates.buckets) == MOST_BUCKETS
    with pytest.raises(TooMany):
        rates.count_request(MOST_BUCKETS + 49, "somebody")


def test_sign_ins_of_a_key_are_as_many_as_they_may_be(
    guarded: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mallorn.db.repositories.access_control.MOST_OF_OWNER", 2)
    name = f"mallorn_session_{guarded.url.rpartition(':')[2]}"
    cookies = [guarded.ask("a key", "POST", "/session").cookies[name] for _ in range(3)]
    guarded.http.cookies.clear()
    headers = [{"Cookie": f"{name}={cookie}"} for cookie in cookies]
    assert [guarded.http.get("/jobs", headers=each).status_code for each in headers] == [401, 200, 200]


def test_options_have_an_end(coordinator: Coordinator) -> None:
    model = coordinator.upload()
    for options in (
        {"only": ["conv*"] * 65},
        {"only": ["c" * 201]},
        {"search": "a.b:C" + "c" * 200},
        {"input_shapes": {"x": [1] * 17}},
        {"input_shapes": {f"x{at}": [1] for at in range(1025)}},
        {"input_shapes": {f"{at:0>190}": [1] for at in range(200)}},
    ):
        answer = coordinator.submit(model_id=model, options=options)
        assert answer.status_code == 422, options
    assert coordinator.submit(model_id=model, options={"only": ["conv*"] * 64}).status_code == 201


def test_an_owner_sees_which_key_an_admin_made_for_them(coordinator: Coordinator) -> None:
    admin = coordinator.new_key("root", Scope.ADMIN).key
    hers = coordinator.new_key("grace", Scope.READ).key
    made = coordinator.ask(admin, "POST", "/keys", json={"name": "ci", "owner": "grace", "scopes": ["read"]})
    key_id = made.json()["id"]
    coordinator.ask(admin, "DELETE", f"/keys/{key_id}")
    told = coordinator.ask(hers, "GET", "/audit").json()["items"]
    assert told.pop(0)["detail"] == f"first use of key {hers.split('_')[1]}"
    assert [(each["owner"], each["method"], each["subject"]) for each in told] == [
        ("root", "DELETE", "grace"),
        ("root", "POST", "grace"),
    ]
    assert told[1]["detail"] == f"key {key_id}, which may read"
    bob = coordinator.new_key("bob", Scope.READ).key
    assert [each["method"] for each in coordinator.ask(bob, "GET", "/audit").json()["items"]] == ["USE"]
    pages = coordinator.ask(hers, "GET", "/audit", params={"limit": 2}).json()
    rest = coordinator.ask(hers, "GET", "/audit", params={"limit": 2, "cursor": pages["next_cursor"]}).json()
    assert [each["id"] for each in pages["items"][1:] + rest["items"]] == [each["id"] for each in told]
    coordinator.ask(admin, "POST", "/owners/erase", json={"owner": "grace"})
    everything = coordinator.ask(admin, "GET", "/audit").text
    assert "grace" not in everything
