"""Uploads: skipped where the service has the model, in parts that are resumed, and bounded."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import mallorn.http
import mallorn.model_upload
from mallorn import Client
from mallorn.core.api_keys import Scope
from mallorn.core.errors import Unavailable
from mallorn.services.coordinator import resumable_uploads
from mallorn.services.coordinator.web.quotas import MOST_UPLOADS
from tests.fixtures.coordinator import Coordinator, Start
from tests.fixtures.models import onnx_bytes

PART: int = 1 << 16
SIZE: int = 3 * PART + 100


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable_uploads, "PART_BYTES", PART)
    monkeypatch.setattr(mallorn.model_upload, "PARTS_FROM_BYTES", PART)
    monkeypatch.setattr(mallorn.http, "RETRY_SEC", 0.0)


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
            if request.url.path.endswith("/uploads"):
                return httpx.Response(404, json={"error": "NotFound", "detail": "there is no /uploads"})
            return super().handle_request(request)

    sending = Older()
    with Client(coordinator.url, transport=sending) as client:
        kept = client.upload(model)
    assert sending.sent == [f"GET /models/{kept.id}", "PUT /models"]


def opened(coordinator: Coordinator, content: bytes, **changes: Any) -> httpx.Response:
    body = {"model_id": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    return coordinator.http.post("/uploads", json=body | changes)


def test_wrong_parts_are_refused_and_wrong_bytes_are_never_a_model(coordinator: Coordinator) -> None:
    content = bytes(PART + 5)
    upload = opened(coordinator, content).json()
    path = f"/uploads/{upload['id']}"
    assert (upload["part_bytes"], upload["parts"]) == (PART, [])
    for index, wrong in (
        (0, bytes(PART - 1)),
        (0, bytes(PART + 1)),
        (1, b"6 byte"),
        (2, b"x"),
        (10_000, b"x"),
    ):
        assert coordinator.http.put(f"{path}/parts/{index}", content=wrong).status_code == 422, index
    incomplete = coordinator.http.post(f"{path}/complete")
    assert (incomplete.status_code, "lacks 2 of 2 parts" in incomplete.text) == (409, True)
    assert coordinator.http.put(f"{path}/parts/0", content=b"\1" * PART).status_code == 204
    assert coordinator.http.put(f"{path}/parts/1", content=bytes(5)).status_code == 204
    assert opened(coordinator, content).json()["parts"] == [0, 1]
    assert opened(coordinator, content, size_bytes=7).status_code == 409
    refused = coordinator.http.post(f"{path}/complete")
    assert (refused.status_code, "are not the bytes" in refused.text) == (422, True)
    assert stored(coordinator) == []
    assert coordinator.http.post(f"{path}/complete").status_code == 404
    assert coordinator.http.get("/models").json()["items"] == []


def test_unfinished_uploads_are_few_small_and_within_the_quota(start: Start) -> None:
    coordinator = start(max_model_bytes=1000, quota_model_bytes=2000)
    assert opened(coordinator, b"x", size_bytes=1001).status_code == 413
    assert [opened(coordinator, bytes(900 + at)).status_code for at in range(3)] == [200, 200, 429]
    assert opened(coordinator, bytes(900)).status_code == 200, "one that is there counts once"
    many = start()
    statuses = [opened(many, bytes(1 + at)).status_code for at in range(MOST_UPLOADS)]
    assert statuses == [200] * (MOST_UPLOADS - 2) + [429] * 2


@pytest.fixture
def guarded(start: Start) -> Coordinator:
    return start(api_keys={"ada": "0" * 64})


def test_nobody_learns_that_another_owner_has_a_model(guarded: Coordinator, model: Path) -> None:
    ada, bob = (guarded.new_key(owner, Scope.READ, Scope.SUBMIT).key for owner in ("ada", "bob"))
    with Client(guarded.url, ada) as client:
        kept = client.upload(model)
    unknown = f"/models/{'0' * 64}"
    answers = [guarded.ask(bob, "GET", path) for path in (f"/models/{kept.id}", unknown)]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json()["detail"].replace(kept.id, "0" * 64) == answers[1].json()["detail"]
    sending = Sending()
    with Client(guarded.url, bob, transport=sending) as client:
        assert client.upload(model).id == kept.id
    assert sending.parts() == ["0", "1", "2", "3"], "all of it, as if nobody had it"


def test_a_key_that_may_not_read_may_upload(guarded: Coordinator, model: Path) -> None:
    sending = Sending()
    with Client(guarded.url, guarded.new_key("ada", Scope.SUBMIT).key, transport=sending) as client:
        client.upload(model)
    assert sending.parts() == ["0", "1", "2", "3"]
