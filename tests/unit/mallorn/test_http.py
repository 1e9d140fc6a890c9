"""What the client makes of answers, of silence and of strangers."""

import socket
from collections.abc import Callable
from types import SimpleNamespace

import httpx
import pytest

import mallorn.client
import mallorn.http
from mallorn import Client
from mallorn.core import errors
from mallorn.core.outcomes import Outcome
from mallorn.core.values.dataset import Record
from tests.fixtures.coordinator import Coordinator

Answer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answer, api_key: str | None = None) -> Client:
    return Client("http://coordinator", api_key, transport=httpx.MockTransport(answer))


def test_nobody_there_names_the_command_that_helps() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # held, so that nobody else comes to listen there
        nobody = Client(f"http://127.0.0.1:{deaf.getsockname()[1]}")
        with nobody, pytest.raises(errors.Unavailable, match="no coordinator answers") as caught:
            nobody.devices()
    assert caught.value.hint.startswith("mallorn up")


def test_an_error_in_a_traceback_shows_its_next_step() -> None:
    body = {"error": "NotFound", "detail": "there is no job x", "hint": "mallorn jobs"}
    with (
        client(lambda request: httpx.Response(404, json=body)) as api,
        pytest.raises(errors.NotFound) as caught,
    ):
        api.job("x")
    assert str(caught.value) == "there is no job x\nnext: mallorn jobs"
    assert (caught.value.message, caught.value.hint) == ("there is no job x", "mallorn jobs")
    assert str(errors.NotFound("gone")) == "gone"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_proxy_is_not_asked_for_what_runs_on_this_machine(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Client(coordinator.url) as local:
        assert local.devices() == []


@pytest.mark.parametrize(
    ("status", "name", "kind"),
    [
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (422, "InvalidTarget", errors.InvalidTarget),
        (413, "TooLarge", errors.TooLarge),
        (507, "StorageFull", errors.StorageFull),
        (503, "NewerThanThisClient", errors.Unavailable),
        (500, "MallornError", errors.MallornError),
    ],
)
def test_an_error_becomes_the_exception_of_its_name(
    status: int, name: str, kind: type[errors.MallornError]
) -> None:
    body = {"error": name, "detail": "what happened", "hint": "what to type"}
    with pytest.raises(kind) as caught:
        client(lambda _: httpx.Response(status, json=body)).job("x")
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.hint) == ("what happened", "what to type")


def test_a_proxys_page_of_error_is_an_error_too() -> None:
    with pytest.raises(errors.Unavailable, match="HTTP 502"):
        client(lambda _: httpx.Response(502, html="<h1>Bad gateway</h1>")).workers()


def test_a_stranger_on_the_port_is_named() -> None:
    with pytest.raises(errors.Unavailable, match="does not answer like a Mallorn coordinator"):
        client(lambda _: httpx.Response(200, html="<h1>Welcome</h1>")).devices()


@pytest.mark.parametrize("url", ["coordinator", "ftp://coordinator", "http://:port"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="is not a URL"):
        Client(url).devices()


def test_a_broken_connection_is_unavailable() -> None:
    def broken(_request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("")

    with pytest.raises(errors.Unavailable, match="ReadTimeout"):
        client(broken).devices()


def test_the_key_is_presented() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization"))
        return httpx.Response(200, json={"items": []})

    client(answer, "secret").devices()
    client(answer).devices()
    assert seen == ["Bearer secret", None]


def test_every_page_of_a_list_is_fetched_and_none_before_it_is_needed() -> None:
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        cursor = request.url.params.get("cursor")
        asked.append(cursor)
        following = {None: "1", "1": "2", "2": None}
        item = {"id": int(cursor or 0), "outcome": "ok", "of_a_newer_version": True}
        return httpx.Response(200, json={"items": [item], "next_cursor": following[cursor]})

    records = client(answer).records()
    assert next(records) == Record(id=0, outcome=Outcome.OK)
    assert asked == [None]
    assert [record.id for record in records] == [1, 2]


def test_an_answer_of_another_shape_is_no_coordinators() -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"items": [{"id": "a", "outcome": "odd"}], "next_cursor": None})

    with pytest.raises(errors.Unavailable, match="does not answer like a Mallorn coordinator") as caught:
        next(client(answer).records())
    assert caught.value.hint == "check --url or MALLORN_URL"


def test_a_missing_file_is_named_before_anything_is_asked() -> None:
    with pytest.raises(errors.InvalidModel, match="missing"):
        Client("http://nobody.invalid").upload("missing.onnx")


def test_a_lost_answer_to_a_submit_makes_no_second_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mallorn.client, "RETRY_SEC", 0.0)
    keys: list[str] = []

    def lossy(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            raise httpx.ReadError("connection reset")
        return httpx.Response(200, json={"id": "j", "state": "queued"})

    assert client(lossy).tune("0" * 64).id == "j"
    assert len(keys) == 2
    assert keys[0] == keys[1]


def test_a_submit_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mallorn.client, "RETRY_SEC", 0.0)
    tries: list[str] = []

    def away(request: httpx.Request) -> httpx.Response:
        tries.append(request.url.path)
        raise httpx.ConnectError("refused")

    with pytest.raises(errors.Unavailable, match="no coordinator answers"):
        client(away).tune("0" * 64)
    assert len(tries) == 3


def refusing(times: int, waited: list[float], monkeypatch: pytest.MonkeyPatch) -> Client:
    """A coordinator that has had enough of us, so many times."""
    body = {"error": "TooMany", "detail": "ada may make 3 requests a minute", "hint": "come again in 7 s"}
    left = [times]

    def answer(request: httpx.Request) -> httpx.Response:
        left[0] -= 1
        if left[0] >= 0:
            return httpx.Response(429, json=body, headers={"Retry-After": "7"})
        return httpx.Response(200, json={"items": [], "next_cursor": None})

    monkeypatch.setattr(mallorn.http, "time", SimpleNamespace(sleep=waited.append))
    return client(answer)


def test_who_reads_too_often_comes_again_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    with refusing(2, waited, monkeypatch) as api:
        assert api.devices() == []
    assert waited == [7.0, 7.0]


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    with refusing(99, waited, monkeypatch) as api, pytest.raises(errors.TooMany, match="3 requests"):
        api.devices()
    assert len(waited) == mallorn.http.MOST_WAITS


def test_what_changes_something_is_not_sent_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    with refusing(1, waited, monkeypatch) as api, pytest.raises(errors.TooMany):
        api.create_key("ci")
    assert waited == []
