"""A stored model as files: one, or a tar of a model and of the files that hold its weights."""

import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, Final

from mallorn.core.errors import InvalidModel
from mallorn.parcel import CHUNK_BYTES, MODEL

MOST_FILES: Final = 10_000
AGAIN: Final = "mallorn tune MODEL   (sends the model with the files beside it that hold its weights)"


def unpack(stored: IO[bytes], directory: Path) -> Path:
    """Write a stored model into a directory; the path of its ONNX file.

    A tar begins with the model. Raises InvalidModel for one that is torn, or holds anything but files of that
    directory: a link or a path out of it is never followed.
    """
    head = stored.read(tarfile.BLOCKSIZE)
    stored.seek(0)
    if head[257:262] != b"ustar":
        with (directory / MODEL).open("wb") as copy:
            shutil.copyfileobj(stored, copy, CHUNK_BYTES)
        return directory / MODEL
    try:
        with tarfile.open(fileobj=stored, mode="r|") as archive:
            return _extract(archive, directory)
    except tarfile.TarError as error:
        raise InvalidModel(f"the archive of the model cannot be read: {error}", hint=AGAIN) from None


def _extract(archive: tarfile.TarFile, directory: Path) -> Path:
    written: list[Path] = []
    for member in archive:
        name = PurePosixPath(member.name)
        inside = not name.is_absolute() and ".." not in name.parts and bool(name.parts)
        path, content = directory / name, archive.extractfile(member) if member.isreg() else None
        if not inside or content is None or member.issparse() or len(written) == MOST_FILES or path.exists():
            raise InvalidModel(
                f"the archive of the model holds {member.name!r}, which is no plain file of its own",
                hint=AGAIN,
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as copy:
            shutil.copyfileobj(content, copy, CHUNK_BYTES)
        written.append(path)
    if not written:
        raise InvalidModel("the archive of the model is empty", hint=AGAIN)
    return written[0]
