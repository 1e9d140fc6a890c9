"""A stored model becomes files of one directory; nothing in an archive reaches out of it."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mallorn.core.errors import InvalidModel, StorageFull
from mallorn.workers.process.unpack_model import check_disk_space, unpack

Add = Callable[[tarfile.TarFile], None]


def file(name: str, content: bytes = b"content") -> Add:
    def add(archive: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))

    return add


def special(kind: bytes, name: str = "weights.bin", target: str = "/etc/passwd") -> Add:
    def add(archive: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        archive.addfile(member)

    return add


def tar(*adds: Add) -> bytes:
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w") as archive:
        for add in adds:
            add(archive)
    return stored.getvalue()


def test_a_single_file_is_the_model(tmp_path: Path) -> None:
    assert unpack(io.BytesIO(b"\x08\x08model"), tmp_path).read_bytes() == b"\x08\x08model"


def test_an_archive_begins_with_the_model(tmp_path: Path) -> None:
    stored = tar(file("model.onnx", b"m"), file("deep/er/weights.bin", b"w"))
    assert unpack(io.BytesIO(stored), tmp_path).read_bytes() == b"m"
    assert (tmp_path / "deep/er/weights.bin").read_bytes() == b"w"


@pytest.mark.parametrize(
    "bad",
    [
        file("../outside"),
        file("/tmp/outside"),
        file("a/../../outside"),
        file("model.onnx", b"again"),
        special(tarfile.SYMTYPE),
        special(tarfile.LNKTYPE),
        special(tarfile.FIFOTYPE),
        special(tarfile.CHRTYPE),
        special(tarfile.DIRTYPE),
    ],
)
def test_nothing_leaves_the_directory_and_nothing_is_written_twice(tmp_path: Path, bad: Add) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(InvalidModel, match="not a plain file") as caught:
        unpack(io.BytesIO(tar(file("model.onnx"), bad)), inner)
    assert caught.value.hint
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "model.onnx"]


@pytest.mark.parametrize("size", [600, 1500])
def test_a_torn_archive_is_refused(tmp_path: Path, size: int) -> None:
    stored = tar(file("model.onnx", bytes(1000)), file("weights", bytes(1000)))
    with pytest.raises(InvalidModel, match="the archive of the model"):
        unpack(io.BytesIO(stored[:size]), tmp_path)


def test_a_flood_of_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mallorn.workers.process.unpack_model.MOST_FILES", 2)
    with pytest.raises(InvalidModel):
        unpack(io.BytesIO(tar(*(file(f"f{number}") for number in range(3)))), tmp_path)


def test_a_model_that_does_not_fit_is_refused_before_it_is_copied_and_the_folder_named(
    tmp_path: Path,
) -> None:
    check_disk_space(tmp_path, 1)
    with pytest.raises(StorageFull, match=f"the model takes .* are free in {tmp_path}"):
        check_disk_space(tmp_path, 1 << 60)
