"""Uploads: skipped where the service has the model, in parts that are resumed, and bounded."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import mallorn.client.http_connection
import mallorn.client.model_upload
from mallorn import Client
from mallorn.core.api_keys import Scope
from mallorn.core.errors import Unavailable
from mallorn.services.coordinator import uploaded_models
from tests.fixtures.coordinator import Coordinator, Start
from tests.fixtures.models import onnx_bytes

PART: int = 1 << 16
SIZE: int = 3 * PART + 100


@pytest.fixture(autouse=True)
def small_parts(quick_retries: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploaded_models, "PART_BYTES", PART)
    monkeypatch.setattr(mallorn.client.model_upload, "PARTS_FROM_BYTES", PART)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    file.write_bytes(onnx_bytes(size_bytes=SIZE))
    return file


class Sending(httpx.BaseTransport):
    """Passes requests on and notes them; `breaks` says of each whether its answer gets lost."""

    def __init__(self, breaks: Callable[[httpx.Request], bool] = lambda request: False) -> None:
        self._network = httpx.HTTPTransport()
        self._breaks = breaks
        self.sent: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(f"{request.method} {request.url.path.rpartition('/v1')[2]}")
        if self._breaks(request):
            raise httpx.ReadError("connection reset")
        return self._network.handle_request(request)

    def close(self) -> None:
        self._network.close()

    def parts(self) -> list[str]:
        return [line.rpartition("/")[2] for line in self.sent if "/parts/" in line]


def stored(coordinator: Coordinator) -> list[str]:
    return sorted(path.name for path in coordinator.artifacts.rglob("*") if path.is_file())


def test_what_the_service_has_is_not_sent_again(coordinator: Coordinator, model: Path) -> None:
    seen: list[tuple[int, int]] = []
    sending = Sending()
    with Client(coordinator.url, transport=sending) as client:
        first = client.upload(model)
        del sending.sent[:]
        assert client.upload(model, lambda *told: seen.append(told)) == first
    assert sending.sent == [f"GET /models/{first.id}"]
    assert seen == [(first.size_bytes, first.size_bytes)]


def test_a_model_whose_file_was_lost_is_sent_again(coordinator: Coordinator, model: Path) -> None:
    with Client(coordinator.url) as client:
        first = client.upload(model)
        (coordinator.artifacts / "models" / first.id).unlink()
        assert client.upload(model) == first
    assert stored(coordinator) == [first.id]


def test_a_large_model_goes_in_parts_and_nothing_else_is_left(coordinator: Coordinator, model: Path) -> None:
    sending = Sending()
    with Client(coordinator.url, transport=sending) as client:
        kept = client.upload(model)
    assert sending.parts() == ["0", "1", "2", "3"]
    assert kept.id == hashlib.sha256(model.read_bytes()).hexdigest()
    assert (coordinator.artifacts / "models" / kept.id).read_bytes() == model.read_bytes()
    assert stored(coordinator) == [kept.id]


def test_a_part_whose_answer_is_lost_is_sent_again(coordinator: Coordinator, model: Path) -> None:
    left = iter([True, True])
    sending = Sending(lambda request: request.url.path.endswith("/parts/1") and next(left, False))
    progress: list[int] = []
    with Client(coordinator.url, transport=sending) as client:
        kept = client.upload(model, lambda sent, total: progress.append(sent))
    assert sending.parts() == ["0", "1", "1", "1", "2", "3"]
    assert progress[-1] == kept.size_bytes


def test_an_upload_that_broke_sends_only_the_rest(coordinator: Coordinator, model: Path) -> None:
    sending = Sending(lambda request: request.url.path.endswith("/parts/2"))
    with Client(coordinator.url, transport=sending) as client, pytest.raises(Unavailable) as broken:
        client.upload(model)
    assert f"{2 * PART:,} of {len(model.read_bytes()):,} bytes of the model arrived" in broken.value.message
    assert "sends only the rest" in broken.value.hint
    sending = Sending()
    with Client(coordinator.url, transport=sending) as client:
        kept = client.upload(model)
    assert sending.parts() == ["2", "3"]
    assert stored(coordinator) == [kept.id]


def test_an_older_coordinator_gets_one_stream(coordinator: Coordinator, model: Path) -> None:
    class Older(Sending):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if "/uploads/" in request.url.path:
                return httpx.Response(404, json={"error": "NotFound", "detail": "there is no /uploads"})
            return super().handle_request(request)

    sending = Older()
    with Client(coordinator.url, transport=sending) as client:
        kept = client.upload(model)
    assert sending.sent == [f"GET /models/{kept.id}", "PUT /models"]


def test_wrong_parts_are_refused_and_wrong_bytes_are_never_a_model(coordinator: Coordinator) -> None:
    path = f"/uploads/{hashlib.sha256(bytes(PART + 5)).hexdigest()}"
    put, post = coordinator.http.put, coordinator.http.post
    assert put(f"{path}/parts/0", content=bytes(PART + 1)).status_code == 413
    assert put(f"{path}/parts/0", content=b"").status_code == 422
    assert put(f"{path}/parts/10000", content=b"x").status_code == 422
    assert put("/uploads/..%2Fx/parts/0", content=b"x").status_code in (404, 422)
    assert post(f"{path}/complete").status_code == 409
    assert put(f"{path}/parts/1", content=bytes(5)).status_code == 204
    assert post(f"{path}/complete").status_code == 409, "the first part is missing"
    assert put(f"{path}/parts/0", content=b"\1" * PART).status_code == 204
    assert coordinator.http.get(path).json()["parts"] == [0, 1]
    refused = post(f"{path}/complete")
    assert (refused.status_code, "are not the bytes" in refused.text) == (409, True)
    assert stored(coordinator) == []
    assert coordinator.http.get(path).json()["parts"] == []
    assert coordinator.http.get("/models").json()["items"] == []


def test_unfinished_uploads_are_bounded(start: Start) -> None:
    def status(coordinator: Coordinator, number: int, index: int = 0) -> int:
        path = f"/uploads/{number:064x}/parts/{index}"
        return coordinator.http.put(path, content=bytes(PART)).status_code

    limited = start(max_model_bytes=2 * PART, quota_model_bytes=3 * PART)
    assert [status(limited, number) for number in range(4)] == [204, 204, 204, 429]
    unlimited = start(max_model_bytes=PART)
    assert status(unlimited, 9, index=1) == 422
    assert [status(unlimited, 9), status(unlimited, 10)] == [204, 429], "four largest models' parts"


def test_only_the_last_part_is_smaller_than_the_others(coordinator: Coordinator) -> None:
    def status(index: int, size_bytes: int) -> int:
        path = f"/uploads/{'e' * 64}/parts/{index}"
        return coordinator.http.put(path, content=bytes(size_bytes)).status_code

    assert [status(2, 5), status(0, PART), status(1, 1)] == [204, 204, 422]
    assert [status(3, 1), status(2, PART), status(3, 1)] == [422, 204, 204]
    assert sorted(stored(coordinator)) == ["0", "2", "3"]


def test_an_owner_has_a_limited_number_of_unfinished_uploads(start: Start) -> None:
    limited = start(quota_uploads=2)

    def status(number: int, index: int = 0) -> int:
        return limited.http.put(f"/uploads/{number:064x}/parts/{index}", content=bytes(PART)).status_code

    assert [status(number) for number in range(4)] == [204, 204, 429, 429]
    assert status(1, index=1) == 204, "those that began go on"


def test_an_owner_has_a_limited_number_of_running_uploads(start: Start) -> None:
    limited = start(quota_uploads=1)
    with limited.parts.uploads.count_request("local"):
        assert limited.http.put("/models", content=b"a").status_code == 429
        with limited.parts.uploads.count_request("bob"):
            pass
    assert limited.http.put("/models", content=b"a").status_code == 200


def test_bytes_count_against_the_quota_while_parts_are_joined(start: Start) -> None:
    limited = start(quota_model_bytes=2 * PART)
    content = bytes(PART) + b"rest"
    path = f"/uploads/{hashlib.sha256(content).hexdigest()}"
    assert limited.http.put(f"{path}/parts/0", content=content[:PART]).status_code == 204
    assert limited.http.put(f"{path}/parts/1", content=content[PART:]).status_code == 204
    with limited.parts.arriving.track_request("local") as grow:
        grow(PART)
        assert limited.http.post(f"{path}/complete").status_code == 429
    assert limited.http.post(f"{path}/complete").status_code == 200


@pytest.fixture
def guarded(start: Start) -> Coordinator:
    return start(api_keys={"ada": "f" * 64})  # it is redacted in messages


def test_nobody_learns_that_another_owner_has_a_model(guarded: Coordinator, model: Path) -> None:
    ada, bob = (guarded.new_key(owner, Scope.READ, Scope.SUBMIT).key for owner in ("ada", "bob"))
    with Client(guarded.url, ada) as client:
        kept = client.upload(model)
    unknown = hashlib.sha256(b"a model that nobody has").hexdigest()
    answers = [guarded.ask(bob, "GET", f"/models/{model_id}") for model_id in (kept.id, unknown)]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json()["detail"].replace(kept.id, unknown) == answers[1].json()["detail"]
    sending = Sending()
    with Client(guarded.url, bob, transport=sending) as client:
        assert client.upload(model).id == kept.id
    assert sending.parts() == ["0", "1", "2", "3"], "all of it, as if nobody had it"


def test_a_key_that_may_not_read_may_upload(guarded: Coordinator, model: Path) -> None:
    sending = Sending()
    with Client(guarded.url, guarded.new_key("ada", Scope.SUBMIT).key, transport=sending) as client:
        kept = client.upload(model)
    assert stored(guarded) == [kept.id]
