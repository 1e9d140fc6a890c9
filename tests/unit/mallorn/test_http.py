"""What the client makes of answers, of silence and of strangers."""

import hashlib
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest

import mallorn.client.coordinator_client
import mallorn.client.http_connection
import mallorn.client.model_upload
from mallorn import Client
from mallorn.core import errors
from mallorn.core.outcomes import Outcome
from mallorn.core.values.dataset import Record
from mallorn.core.version import VERSION
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.kept import Kept
from tests.fixtures.models import onnx_bytes

Answer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answer, api_key: str | None = None) -> Client:
    return Client("http://coordinator", api_key, transport=httpx.MockTransport(answer))


ODD = {"items": [{"id": "a", "outcome": "odd"}], "next_cursor": None}
# What may answer in a coordinator's place, and what the client makes of it: tests/kept/client-errors.txt.
STRANGERS: dict[str, Answer] = {
    "a proxy's page of an error": lambda _: httpx.Response(502, html="<h1>Bad gateway</h1>"),
    "a proxy that takes less": lambda _: httpx.Response(413, text="<h1>413 Request Entity Too Large</h1>"),
    "a stranger on the port": lambda _: httpx.Response(200, html="<h1>Welcome</h1>"),
    "an answer of another shape": lambda _: httpx.Response(200, json=ODD),
    "a broken connection": Mock(side_effect=httpx.ReadTimeout("")),
}


def test_who_answers_in_a_coordinators_place_is_named(kept: Kept) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # held, so that nobody else comes to listen there
        nobody = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        urls = {
            "nobody is there": nobody,
            "no scheme": "coordinator",
            "ftp": "ftp://c",
            "no host": "http://:port",
        }
        clients = {state: partial(client, answer) for state, answer in STRANGERS.items()}
        texts = {}
        for state, opened in (clients | {state: partial(Client, url) for state, url in urls.items()}).items():
            with pytest.raises(errors.MallornError) as caught, opened() as api:
                next(api.records())
            error = caught.value
            text = f"{type(error).__name__}: {error.message}\n{error.hint}"
            texts[state] = text.replace(nobody, "http://NOBODY").replace(VERSION, "VERSION")
    kept("client-errors", texts)


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


def test_a_client_tells_the_id_where_the_log_says_more() -> None:
    body = {
        "error": "Unavailable",
        "detail": "the database does not answer",
        "hint": "",
        "request_id": "here",
    }
    error = mallorn.client.http_connection.error_from(httpx.Response(503, json=body))
    assert isinstance(error, errors.Unavailable)
    assert error.message == "the database does not answer (request here)"
    refused = mallorn.client.http_connection.error_from(
        httpx.Response(404, json={**body, "error": "NotFound"})
    )
    assert (refused.message, refused.request_id) == ("the database does not answer", "here")


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


def test_a_missing_file_is_named_before_anything_is_asked() -> None:
    with pytest.raises(errors.InvalidModel, match="missing"):
        Client("http://nobody.invalid").upload("missing.onnx")


def test_a_lost_answer_to_a_submit_makes_no_second_job(quick_retries: None) -> None:
    keys: list[str] = []

    def lossy(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            raise httpx.ReadError("connection reset")
        return httpx.Response(200, json={"id": "j", "state": "queued"})

    assert client(lossy).submit("0" * 64).id == "j"
    assert len(keys) == 2
    assert keys[0] == keys[1]


def test_a_submit_is_not_tried_for_ever(quick_retries: None) -> None:
    tries: list[str] = []

    def away(request: httpx.Request) -> httpx.Response:
        tries.append(request.url.path)
        raise httpx.ConnectError("refused")

    with pytest.raises(errors.Unavailable, match="no coordinator answers"):
        client(away).submit("0" * 64)
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

    monkeypatch.setattr(mallorn.client.http_connection.time, "sleep", waited.append)
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
    assert len(waited) == mallorn.client.http_connection.RETRIES


def test_what_changes_something_is_not_sent_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    with refusing(1, waited, monkeypatch) as api, pytest.raises(errors.TooMany):
        api.create_key("ci")
    assert waited == []


class Cutting(httpx.BaseTransport):
    """A proxy whose patience ends while the coordinator still keeps what it was sent."""

    def __init__(self, answer: httpx.Response | Exception, looks: int | None) -> None:
        self._answer = answer
        self._looks = looks  # that find nothing before one finds the model; None: there never is one
        self._id = ""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            self._id = hashlib.sha256(b"".join(request.stream)).hexdigest()  # type: ignore[arg-type]
            if isinstance(self._answer, Exception):
                raise self._answer
            return self._answer
        assert not self._id or request.url.path.endswith(f"/models/{self._id}")
        if not self._id or self._looks is None or self._looks > 0:
            self._looks = self._looks and self._looks - bool(self._id)
            body = {"error": "NotFound", "detail": "there is no model", "hint": ""}
            return httpx.Response(404, json=body)
        return httpx.Response(200, json={"id": self._id, "name": "m", "size_bytes": 1, "created_at": 1.0})


PATIENCE_ENDS = [
    httpx.Response(504, text="<h1>504 Gateway Time-out</h1>"),
    httpx.Response(502, text="<h1>502 Bad Gateway</h1>"),
    httpx.RemoteProtocolError("Server disconnected without sending a response."),
]


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mallorn.client.model_upload, "LOOK_EVERY_SEC", 0.0)


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("answer", PATIENCE_ENDS, ids=["504", "502", "cut"])
def test_a_model_whose_answer_got_lost_is_found_by_its_hash(
    answer: httpx.Response | Exception, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(onnx_bytes())
    with Client("http://coordinator", transport=Cutting(answer, looks=1)) as api:
        found = api.upload(tmp_path / "model.onnx")
    assert found.id == hashlib.sha256((tmp_path / "model.onnx").read_bytes()).hexdigest()


@pytest.mark.usefixtures("quickly")
def test_a_model_that_never_arrived_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mallorn.client.model_upload, "PATIENCE_SEC", 0.2)
    (tmp_path / "model.onnx").write_bytes(onnx_bytes())
    with (
        Client("http://coordinator", transport=Cutting(PATIENCE_ENDS[0], looks=None)) as api,
        pytest.raises(errors.Unavailable, match="HTTP 504"),
    ):
        api.upload(tmp_path / "model.onnx")


def test_an_upload_that_the_coordinator_refuses_is_looked_for_nowhere(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(onnx_bytes())
    body = {"error": "Unavailable", "detail": "the database does not answer", "hint": ""}
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        missing = {"error": "NotFound", "detail": "there is no model", "hint": ""}
        return httpx.Response(404, json=missing) if asked[1:] == [] else httpx.Response(503, json=body)

    with client(answer) as api, pytest.raises(errors.Unavailable, match="the database does not answer"):
        api.upload(tmp_path / "model.onnx")
    assert asked == ["GET", "PUT"]
