"""What a coordinator that was killed left of an upload goes; what another one still receives stays."""

import os
import time
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from mallorn.core.artifact_uris import model_uri, open_store, scripts_uri
from mallorn.core.errors import InvalidRequest, MallornError, MissingPackage
from mallorn.services.artifact_removal import remove
from mallorn.services.coordinator.web.artifact_store import LONGEST_UPLOAD_SEC, Store
from tests.fixtures.command_line import assert_refused, mallorn


def test_uploads_that_nobody_ends_are_swept_and_those_under_way_stay(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.remove_stale_uploads()  # before the first upload there is no folder
    with store.upload(1000) as under_way:
        under_way.write(b"a model")
        models = tmp_path / "models"
        left, model = models / ".incoming-left", models / ("0" * 64)
        for file in (left, model):
            file.touch()
            long_ago = time.time() - LONGEST_UPLOAD_SEC - 60
            os.utime(file, (long_ago, long_ago))
        store.remove_stale_uploads()
        assert not left.exists()
        under_way.close_and_hash()
        under_way.move_to_final_path()
    assert len(list(models.iterdir())) == 2


@pytest.fixture
def bucket() -> Iterator[str]:
    """A place that is no folder of this machine."""
    url = f"memory://{uuid4().hex}/artifacts"
    yield url
    MemoryFileSystem.store.clear()


def test_a_store_need_be_no_folder(bucket: str) -> None:
    store = Store(bucket)
    store.remove_stale_uploads()
    with store.upload(1000) as upload:
        upload.write(b"a model")
        model_id = upload.close_and_hash()
        store.remove_stale_uploads()  # it is young
        assert not store.has_model(model_id)
        upload.move_to_final_path()
    fs, path = open_store(model_uri(bucket, model_id))
    assert store.has_model(model_id)
    assert fs.find(bucket) == [path]
    assert fs.cat_file(model_uri(bucket, model_id)) == b"a model"
    fs.pipe_file(scripts_uri(bucket, "ada", "w", "t"), b'{"original": "", "scheduled": "", "trace": ""}')
    assert store.scripts("ada", "w", "t") is not None
    assert store.scripts("ada", "w", "other") is None
    assert store.scripts("bob", "w", "t") is None
    remove(model_uri(bucket, model_id))
    remove(model_uri(bucket, model_id))
    assert not store.has_model(model_id)


def test_an_archive_is_sent_while_it_is_packed(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a.json": b"[]", "b.json": bytes(5 << 20), "folder/c.py": b"pass"}
    fs, root = open_store(bucket)
    for name, content in files.items():
        fs.pipe_file(f"{root}/{name}", content)
    opened: list[str] = []
    kept = MemoryFileSystem.open

    def noted(self: MemoryFileSystem, path: str, *words: Any, **how: Any) -> Any:
        opened.append(path.removeprefix(f"{root}/"))
        return kept(self, path, *words, **how)

    monkeypatch.setattr(MemoryFileSystem, "open", noted)
    pieces = Store(bucket).zip_directory(bucket)
    first = next(pieces)
    assert first.startswith(b"PK")
    assert opened == ["a.json"]
    with zipfile.ZipFile(BytesIO(first + b"".join(pieces))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files
        assert archive.testzip() is None


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("nowhere://bucket", InvalidRequest, "Protocol not known: nowhere"),
        ("gs://bucket", MissingPackage, "gcsfs"),
    ],
)
def test_a_store_that_cannot_be_spoken_to_is_refused_in_a_sentence(
    url: str, kind: type[MallornError], said: str
) -> None:
    with pytest.raises(kind, match=said) as refused:
        open_store(url)
    assert refused.value.hint


@pytest.mark.parametrize("command", ["serve", "worker", "control"])
def test_no_part_starts_without_the_package_that_its_store_needs(command: str, tmp_path: Path) -> None:
    known = {"MALLORN_ARTIFACTS": "gs://bucket/artifacts", "MALLORN_DATA_DIR": str(tmp_path)}
    said = mallorn(command, **known)
    assert_refused(said, "gs:// cannot be reached from here", "gcsfs")
