"""The compiled model is fetched whole or not at all: broken connections, damage, what is there already."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from mallorn.client.http_connection import Connection
from mallorn.client.job import Job
from mallorn.core.errors import InvalidRequest, NotFound, Unavailable
from mallorn.core.values.finish_report import StoredLibrary
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.core.values.manifest import Manifest

pytestmark = pytest.mark.usefixtures("quick_retries")
CONTENT = bytes(range(256)) * 40
DIGEST = sha256(CONTENT).hexdigest()


class Breaking(httpx.SyncByteStream):
    """Bytes after which the connection breaks."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self.content
        raise httpx.ReadError("reset by peer")


class Server:
    """Sends a library as the coordinator does; breaks off after each of `breaks`."""

    def __init__(self, *breaks: int, content: bytes = CONTENT, digest: str = DIGEST) -> None:
        self.breaks, self.content, self.digest = list(breaks), content, digest
        self.asked: list[dict[str, str | None]] = []
        self.takes_ranges = True

    def __call__(self, request: httpx.Request) -> httpx.Response:
        ranged, known = request.headers.get("Range"), request.headers.get("If-None-Match")
        self.asked.append({"range": ranged, "if_range": request.headers.get("If-Range"), "known": known})
        headers = {"ETag": f'"{self.digest}"'}
        if known == headers["ETag"]:
            return httpx.Response(304, headers=headers)
        start = int(ranged.removeprefix("bytes=").rstrip("-")) if ranged and self.takes_ranges else 0
        rest, status = self.content[start:], 206 if start else 200
        if self.breaks:
            rest = rest[: self.breaks.pop(0)]
            return httpx.Response(status, headers=headers, stream=Breaking(rest))
        return httpx.Response(status, headers=headers, content=rest)


def job(answer: Any) -> Job:
    body = {"id": "j", "state": "done"}
    return Job(Connection("http://there", transport=httpx.MockTransport(answer)), body)


def test_a_library_is_written_where_one_wants_it(tmp_path: Path) -> None:
    file = job(Server()).library(tmp_path / "new" / "model.so")
    assert file.read_bytes() == CONTENT
    assert [each.name for each in file.parent.iterdir()] == ["model.so"]


def test_after_a_broken_connection_only_the_rest_is_fetched(tmp_path: Path) -> None:
    server = Server(1000, 500)
    assert job(server).library(tmp_path / "model.so").read_bytes() == CONTENT
    tag = f'"{DIGEST}"'
    told = [(each["range"], each["if_range"]) for each in server.asked]
    assert told == [(None, None), ("bytes=1000-", tag), ("bytes=1500-", tag)]


def test_a_server_that_sends_everything_again_is_understood(tmp_path: Path) -> None:
    server = Server(1000)
    server.takes_ranges = False
    assert job(server).library(tmp_path / "model.so").read_bytes() == CONTENT


def test_a_connection_that_brings_nothing_more_is_given_up_and_the_older_file_stays(tmp_path: Path) -> None:
    (tmp_path / "model.so").write_bytes(b"older")
    with pytest.raises(Unavailable, match="the connection to http://there broke"):
        job(Server(*[0] * 20)).library(tmp_path / "model.so")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("model.so", b"older")]


def test_damaged_bytes_are_refused_and_the_older_file_stays(tmp_path: Path) -> None:
    (tmp_path / "model.so").write_bytes(b"older")
    with pytest.raises(Unavailable, match="its digest is wrong"):
        job(Server(content=CONTENT[:-1] + b"x")).library(tmp_path / "model.so")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("model.so", b"older")]


def test_what_is_there_already_is_not_sent_again(tmp_path: Path) -> None:
    server = Server()
    file = job(server).library(tmp_path / "model.so")
    job(server).library(file)
    assert server.asked[-1]["known"] == f'"{DIGEST}"'
    assert file.read_bytes() == CONTENT


def test_a_refusal_is_told_with_its_class_and_hint(tmp_path: Path) -> None:
    body = {"error": "NotFound", "detail": "job j stored no library.", "hint": "mallorn fetch j"}
    with pytest.raises(NotFound, match="stored no library") as caught:
        job(lambda _: httpx.Response(404, json=body)).library(tmp_path / "model.so")
    assert caught.value.hint == "mallorn fetch j"
    assert not any(tmp_path.iterdir())


def test_where_the_library_cannot_be_written_the_next_command_is_said(tmp_path: Path) -> None:
    (tmp_path / "full").write_text("a file, where a directory should be")
    with pytest.raises(InvalidRequest, match="cannot write the library to") as caught:
        job(Server()).library(tmp_path / "full" / "model.so")
    assert caught.value.hint == "mallorn fetch j --library --out OTHER_DIR"


class Exported(Job):
    """A job whose schedules are a manifest with or without a library."""

    named: StoredLibrary | None = None

    def schedules(self, directory: str | Path) -> Path:
        manifest = Manifest(
            target={"kind": "llvm", "num-cores": 1}, recipe=StoredRecipe(), library=self.named
        )
        Path(directory, "manifest.json").write_text(manifest.model_dump_json())
        return Path(directory)


def exported(answer: Any, named: StoredLibrary | None) -> Exported:
    ours = Exported(job(answer)._connection, {"id": "j", "state": "done"})
    ours.named = named
    return ours


def test_fetch_brings_the_library_that_the_manifest_names(tmp_path: Path) -> None:
    exported(Server(), StoredLibrary(digest=DIGEST, bytes=len(CONTENT))).fetch(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["manifest.json", "model.so"]


def test_fetch_removes_its_own_library_of_earlier_schedules_and_no_other(tmp_path: Path) -> None:
    exported(Server(), StoredLibrary(digest=DIGEST, bytes=len(CONTENT))).fetch(tmp_path)
    exported(Server(), None).fetch(tmp_path)
    assert not (tmp_path / "model.so").exists()
    (tmp_path / "model.so").write_bytes(b"compiled by the user")
    exported(Server(), None).fetch(tmp_path)
    assert (tmp_path / "model.so").read_bytes() == b"compiled by the user"
