"""The artifact store: any place fsspec can write to."""

import hashlib
import posixpath
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final, Self
from uuid import uuid4

from mallorn.core.artifact_uris import away, model_uri, open_store, scripts_uri
from mallorn.core.errors import InvalidRequest, TooLarge
from mallorn.core.os_errors import os_error
from mallorn.core.values.dataset import ScheduleScripts

CHUNK_BYTES: Final = 1 << 20
INCOMING: Final = ".incoming-"
LONGEST_UPLOAD_SEC: Final = 86_400.0


class Store:
    """Models come in, schedules go out."""

    def __init__(self, url: str) -> None:
        self._url = url

    def upload(self, limit_bytes: int) -> "Upload":
        """Begin to receive a model."""
        return Upload(self._url, limit_bytes)

    def sweep(self) -> None:
        """Remove uploads that nobody will end: their coordinator was killed a day ago or more."""
        fs, pattern = open_store(model_uri(self._url, f"{INCOMING}*"))
        for path in fs.glob(pattern):
            if fs.modified(path).timestamp() < time.time() - LONGEST_UPLOAD_SEC:
                fs.rm_file(path)

    def scripts(self, workload_key: str, trace: str) -> ScheduleScripts | None:
        """A schedule as people read it; None where its finish kept no such form."""
        fs, path = open_store(scripts_uri(self._url, workload_key, trace))
        if not fs.exists(path):
            return None
        try:
            return ScheduleScripts.model_validate_json(fs.cat_file(path))
        except ValueError:  # a finish that was killed wrote half of it; the next one writes it anew
            return None

    def holds(self, model_id: str) -> bool:
        """Whether the bytes of a model are there."""
        fs, path = open_store(model_uri(self._url, model_id))
        return bool(fs.exists(path))

    def zip_directory(self, uri: str) -> Iterator[bytes]:
        """A directory as a zip archive, in pieces: each as soon as it is packed, or a proxy gives up."""
        fs, root = open_store(uri)
        packed = _Packed()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, found in sorted(fs.find(root, detail=True).items()):
                member = zipfile.ZipInfo(path.removeprefix(root).lstrip("/"), time.localtime()[:6])
                member.compress_type, member.file_size = zipfile.ZIP_DEFLATED, found["size"]
                with fs.open(path, "rb") as stored, archive.open(member, "w") as file:
                    yield packed.take()
                    while chunk := stored.read(CHUNK_BYTES):
                        file.write(chunk)
                        yield packed.take()
        yield packed.take()


class _Packed:
    """What an archive is written to, and taken from meanwhile."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes, /) -> int:
        self._bytes += data
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """The archive is whole."""

    def take(self) -> bytes:
        taken, self._bytes = bytes(self._bytes), bytearray()
        return taken


class Upload:
    """A model on its way in: counted and hashed as it is written, put under its name once it is whole."""

    def __init__(self, artifacts: str, limit_bytes: int) -> None:
        self._artifacts = artifacts
        self._limit_bytes = limit_bytes
        self._hash = hashlib.sha256()
        self.size_bytes = 0
        self._fs, self._path = open_store(model_uri(artifacts, f"{INCOMING}{uuid4().hex}"))
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        with full_disk_explained(self._path):
            self._fs.makedirs(posixpath.dirname(self._path), exist_ok=True)
            self._file = self._fs.open(self._path, "wb")
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._fs.exists(self._path):
            self._fs.rm_file(self._path)

    def expect(self, size_bytes: int) -> None:
        """Raise TooLarge for a body of this announced size, before any of it is read."""
        if size_bytes > self._limit_bytes:
            raise TooLarge(
                f"this server accepts models up to {self._limit_bytes} bytes, the upload is larger",
                hint="raise MALLORN_MAX_MODEL_BYTES on the coordinator",
            )

    def write(self, chunk: bytes) -> None:
        """Take the next bytes. Raises TooLarge once there are too many, StorageFull without room for them."""
        self.size_bytes += len(chunk)
        self.expect(self.size_bytes)
        self._hash.update(chunk)
        assert self._file is not None  # noqa: S101 - entered
        with full_disk_explained(self._path):
            self._file.write(chunk)

    def close(self) -> str:
        """End the writing; the SHA-256 of what came in. Raises InvalidRequest if that is nothing."""
        if self.size_bytes == 0:
            raise InvalidRequest(
                "the upload is empty", hint="curl -T model.onnx URL/api/v1/models?name=model.onnx"
            )
        with full_disk_explained(self._path):
            self._close()
        return self._hash.hexdigest()

    def keep(self) -> None:
        """Put the whole model under its SHA-256."""
        with full_disk_explained(self._path):
            _, final_path = open_store(model_uri(self._artifacts, self._hash.hexdigest()))
            self._fs.mv(self._path, final_path)

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


@contextmanager
def full_disk_explained(file: str) -> Iterator[None]:
    """Turn what the host refuses into StorageFull or HostFault, and what else there is into StoreAway."""
    try:
        yield
    except OSError as error:
        if (known := os_error(error, file)) is not None:
            raise known from error
        raise away(file, error) from error
