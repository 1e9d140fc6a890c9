"""Uploads: streamed, counted, hashed, and nothing left of one that fails."""

import errno
import hashlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem

from tests.fixtures.coordinator import Coordinator, Start
from tests.fixtures.waiting import wait_for


def stored(coordinator: Coordinator) -> list[str]:
    return [path.name for path in coordinator.artifacts.rglob("*") if path.is_file()]


def test_an_upload_is_named_by_the_hash_of_its_bytes(coordinator: Coordinator) -> None:
    content = bytes(range(256)) * 20_000
    answer = coordinator.http.put("/models", params={"name": "big.onnx"}, content=content)
    model = answer.json()
    assert model["id"] == hashlib.sha256(content).hexdigest()
    assert (model["name"], model["size_bytes"]) == ("big.onnx", len(content))
    assert stored(coordinator) == [model["id"]]
    assert (coordinator.artifacts / "models" / model["id"]).read_bytes() == content
    assert coordinator.http.get(f"/models/{model['id']}").json() == model


def test_the_same_bytes_twice_are_one_model(coordinator: Coordinator) -> None:
    assert coordinator.upload(name="a") == coordinator.upload(name="b")
    items = coordinator.http.get("/models").json()["items"]
    assert [item["name"] for item in items] == ["a"]


def test_models_come_in_pages(coordinator: Coordinator) -> None:
    ids = [coordinator.upload(bytes([number])) for number in range(1, 4)]
    first = coordinator.http.get("/models", params={"limit": 2}).json()
    second = coordinator.http.get("/models", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [item["id"] for item in first["items"] + second["items"]] == ids[::-1]
    assert second["next_cursor"] is None


def test_zero_bytes_are_refused(coordinator: Coordinator) -> None:
    answer = coordinator.http.put("/models", content=b"")
    assert answer.status_code == 422
    assert answer.json()["detail"] == "the upload is empty"
    assert stored(coordinator) == []


def test_a_form_is_refused_because_its_bytes_are_not_the_models(coordinator: Coordinator) -> None:
    for content_type in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
        answer = coordinator.http.put("/models", content=b"x", headers={"Content-Type": content_type})
        assert answer.status_code == 422
        assert "curl -T" in answer.json()["hint"]


def test_an_announced_size_is_refused_before_a_byte_is_sent(start: Start) -> None:
    coordinator = start(max_model_bytes=1000)
    answer = raw_put(coordinator, b"Content-Length: 1001\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")
    assert stored(coordinator) == []


def test_an_unannounced_body_is_cut_off_while_it_streams(start: Start) -> None:
    coordinator = start(max_model_bytes=3 << 20)
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 1 << 30:
            sent += 1 << 16
            yield bytes(1 << 16)

    answer = coordinator.http.put("/models", content=endless())
    assert answer.status_code == 413
    assert answer.json()["error"] == "TooLarge"
    assert sent < 64 << 20
    assert stored(coordinator) == []


def test_a_torn_upload_leaves_nothing(coordinator: Coordinator) -> None:
    with socket.create_connection(address(coordinator)) as connection:
        connection.sendall(put_head(coordinator) + b"Content-Length: 100\r\n\r\nonly this")
        wait_for(lambda: stored(coordinator), "the upload to begin")
    wait_for(lambda: not stored(coordinator), "what had come of the upload to go")
    assert coordinator.http.get("/models").json()["items"] == []


def test_a_full_disk_answers_507(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(opener: LocalFileOpener, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalFileOpener, "write", no_room)
    answer = coordinator.http.put("/models", content=b"model")
    assert answer.status_code == 507
    assert answer.json()["error"] == "StorageFull"
    assert stored(coordinator) == []


def test_a_store_that_is_slow_holds_up_nobody_but_the_upload(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, moving, may_move = coordinator.upload(b"known"), Event(), Event()
    move = LocalFileSystem.mv

    def slowly(*words: Any, **how: Any) -> None:
        moving.set()
        may_move.wait()
        move(*words, **how)

    monkeypatch.setattr(LocalFileSystem, "mv", slowly)
    with ThreadPoolExecutor() as pool:
        upload = pool.submit(coordinator.upload, b"large")
        moving.wait()
        try:
            assert coordinator.submit(model_id=known).status_code == 201
            assert upload.running()
        finally:
            may_move.set()
        assert upload.result() in stored(coordinator)


def test_a_model_that_is_deleted_while_it_arrives_is_no_model_without_bytes(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, move = coordinator.upload(b"known"), LocalFileSystem.mv

    def and_delete(*words: Any, **how: Any) -> None:
        move(*words, **how)
        assert coordinator.http.delete(f"/models/{known}").status_code == 204

    monkeypatch.setattr(LocalFileSystem, "mv", and_delete)
    answer = coordinator.http.put("/models", content=b"known")
    assert (answer.status_code, answer.json()["hint"]) == (503, "upload the model again")
    assert coordinator.http.get(f"/models/{known}").status_code == 404
    assert stored(coordinator) == []


def test_an_unknown_model_is_not_found(coordinator: Coordinator) -> None:
    answer = coordinator.http.get(f"/models/{'0' * 64}")
    assert answer.status_code == 404
    assert answer.json()["hint"] == "mallorn models"


def address(coordinator: Coordinator) -> tuple[str, int]:
    host, _, port = coordinator.url.removeprefix("http://").partition(":")
    return host, int(port)


def put_head(coordinator: Coordinator) -> bytes:
    return f"PUT /api/v1/models?name=x HTTP/1.1\r\nHost: {address(coordinator)[0]}\r\n".encode()


def raw_put(coordinator: Coordinator, rest: bytes) -> bytes:
    with socket.create_connection(address(coordinator)) as connection, connection.makefile("rb") as answer:
        connection.sendall(put_head(coordinator) + rest)
        return answer.readline()
