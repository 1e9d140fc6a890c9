"""Unpacks a stored model: a single ONNX file, or a tar of the model and its weight files."""

import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, cast

from mallorn.core.errors import InvalidModel, StorageFull
from mallorn.core.values.dataset import MODEL
from mallorn.workers.sandbox.untrusted_files import CHUNK_BYTES

MOST_FILES: Final = 10_000
HEADER_BYTES: Final = 1 << 20  # of the headers of one tar member
LONGEST_NAME: Final = 255  # bytes of one path component, the limit of file systems
MOST_PARTS: Final = 8
TOLD: Final = 80  # characters of a file name in an error message
AGAIN: Final = "mallorn tune MODEL   (sends the model with the files beside it that hold its weights)"
# What tarfile raises for malformed or forged headers.
MALFORMED: Final = (tarfile.TarError, ArithmeticError, LookupError, RecursionError, ValueError)


class _BoundedReader:
    """Reads at most `left` bytes of the file, because tarfile trusts any announced size."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell
        self.left = HEADER_BYTES

    def read(self, size: int) -> bytes:
        self.left -= size
        if size < 0 or self.left < 0:
            raise tarfile.ReadError("a header of the archive is too large")
        return self._file.read(size)


def check_disk_space(directory: Path, size_bytes: int) -> None:
    """Raise StorageFull if `directory`'s disk has no room for a model of `size_bytes`."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < size_bytes:
        words = (
            f"the model takes {size_bytes / 1e9:.1f} GB, {free_bytes / 1e9:.1f} GB are free in {directory}"
        )
        raise StorageFull(words, hint=f"df -h {directory.parent}   (then: mallorn resume JOB)")


def unpack(model: IO[bytes], directory: Path) -> Path:
    """Write a stored model into a directory and return the path of its ONNX file.

    The first file of a tar is the model. Raises InvalidModel if the tar is truncated or
    contains anything but plain files: links and paths out of `directory` are never followed.
    """
    head = model.read(tarfile.BLOCKSIZE)
    model.seek(0)
    if head[257:262] != b"ustar":
        with (directory / MODEL).open("wb") as copy:
            shutil.copyfileobj(model, copy, CHUNK_BYTES)
        return directory / MODEL
    try:
        reader = _BoundedReader(model)
        with tarfile.open(fileobj=cast(Any, reader), mode="r:") as archive:
            return _extract(archive, _members(archive, reader), directory)
    except MALFORMED as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InvalidModel(f"the archive of the model cannot be read: {reason}", hint=AGAIN) from None


def _members(archive: tarfile.TarFile, reader: _BoundedReader) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        reader.left = member.size
        yield member
        reader.left = HEADER_BYTES


def _extract(archive: tarfile.TarFile, members: Iterable[tarfile.TarInfo], directory: Path) -> Path:
    paths: dict[PurePosixPath, Path] = {}
    for member in members:
        name = PurePosixPath(member.name)
        parts = name.parts
        is_short = 0 < len(parts) <= MOST_PARTS and all(len(os.fsencode(p)) <= LONGEST_NAME for p in parts)
        is_inside = not name.is_absolute() and ".." not in parts
        is_plain = member.isreg() and not member.issparse() and member.size >= 0
        clashes = name in paths or any(parent in paths for parent in name.parents)
        is_allowed = is_plain and is_short and is_inside and not clashes and len(paths) < MOST_FILES
        if not is_allowed or (directory / name).exists():
            raise InvalidModel(
                f"the archive holds {member.name[:TOLD]!r}, which is not a plain file",
                hint=AGAIN,
            )
        paths[name] = path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        with path.open("xb") as copy:
            if content is not None:
                shutil.copyfileobj(content, copy, CHUNK_BYTES)
    if not paths:
        raise InvalidModel("the archive of the model is empty", hint=AGAIN)
    return next(iter(paths.values()))
