"""The artifact store, at any location that fsspec can write to."""

import hashlib
import posixpath
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final, Self
from uuid import uuid4

from mallorn.core.artifact_uris import model_uri, open_artifact, open_store, scripts_uri, store_away_error
from mallorn.core.errors import InvalidRequest, TooLarge
from mallorn.core.os_errors import explain_os_error
from mallorn.core.values.dataset import ScheduleScripts
from mallorn.core.values.manifest import MANIFEST, Manifest

CHUNK_BYTES: Final = 1 << 20
INCOMING: Final = ".incoming-"
LONGEST_UPLOAD_SEC: Final = 86_400.0


class Store:
    """Stores uploaded models and reads exported schedules."""

    def __init__(self, url: str) -> None:
        self._url = url

    def upload(self, limit_bytes: int) -> "Upload":
        """Return an upload that receives a model of at most `limit_bytes`."""
        return Upload(self._url, limit_bytes)

    def remove_stale_uploads(self) -> None:
        """Remove incomplete uploads that are older than a day (LONGEST_UPLOAD_SEC)."""
        fs, pattern = open_store(model_uri(self._url, f"{INCOMING}*"))
        for path in fs.glob(pattern):
            if fs.modified(path).timestamp() < time.time() - LONGEST_UPLOAD_SEC:
                fs.rm_file(path)

    def scripts(self, owner: str, workload_key: str, trace: str) -> ScheduleScripts | None:
        """Return a schedule's programs as TVMScript; None if they are not stored."""
        fs, path = open_store(scripts_uri(self._url, owner, workload_key, trace))
        if not fs.exists(path):
            return None
        try:
            return ScheduleScripts.model_validate_json(fs.cat_file(path))
        except ValueError:  # a killed finish wrote a part of it; the next one rewrites it
            return None

    def part_sizes(self, uri: str) -> defaultdict[str, dict[int, int]]:
        """Return sizes of parts by folder and index; `uri` is a folder or a pattern."""
        fs, folder = open_store(uri)
        sizes: defaultdict[str, dict[int, int]] = defaultdict(dict)
        with convert_store_errors(folder):
            for path, info in fs.glob(f"{folder}/*", detail=True).items():
                parent, index = posixpath.split(path)
                sizes[posixpath.basename(parent)][int(index)] = int(info["size"])
        return sizes

    def has_model(self, model_id: str) -> bool:
        fs, path = open_store(model_uri(self._url, model_id))
        with convert_store_errors(path):
            return bool(fs.exists(path))

    def manifest(self, uri: str) -> Manifest:
        """Return the manifest of exported schedules. Raises StoreAway, NotFound."""
        with open_artifact(f"{uri}/{MANIFEST}") as (fs, path):
            return Manifest.model_validate_json(fs.cat_file(path))

    def chunks(self, uri: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a file from `start` on. The file is opened before this
        returns, so that its absence can be answered. Raises StoreAway, NotFound."""
        with open_artifact(uri) as (fs, path):
            file = fs.open(path, "rb")

        def read_chunks() -> Iterator[bytes]:
            with convert_store_errors(path), file:
                file.seek(start)
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk

        return read_chunks()

    def zip_directory(self, uri: str) -> Iterator[bytes]:
        """Yield the bytes of a directory's zip archive while it is being packed."""
        fs, root = open_store(uri)
        buffer = _ArchiveBuffer()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, info in sorted(fs.find(root, detail=True).items()):
                member = zipfile.ZipInfo(path.removeprefix(root).lstrip("/"), time.localtime()[:6])
                member.compress_type, member.file_size = zipfile.ZIP_DEFLATED, info["size"]
                with fs.open(path, "rb") as source, archive.open(member, "w") as file:
                    yield buffer.take_written_bytes()
                    while chunk := source.read(CHUNK_BYTES):
                        file.write(chunk)
                        yield buffer.take_written_bytes()
        yield buffer.take_written_bytes()


class _ArchiveBuffer:
    """File that a zip archive is written to, and from which its bytes are taken."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes, /) -> int:
        self._bytes += data
        return len(data)

    def flush(self) -> None:
        """Do nothing: written bytes are immediately available."""

    def close(self) -> None:
        """Do nothing: the last bytes are still available."""

    def take_written_bytes(self) -> bytes:
        content, self._bytes = bytes(self._bytes), bytearray()
        return content


class Upload:
    """Receives a model and computes its hash and size; `move_to_final_path` gives it its final name."""

    def __init__(self, artifacts: str, limit_bytes: int) -> None:
        self._artifacts = artifacts
        self._limit_bytes = limit_bytes
        self._hash = hashlib.sha256()
        self.size_bytes = 0
        self._fs, self._path = open_store(model_uri(artifacts, f"{INCOMING}{uuid4().hex}"))
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        with convert_store_errors(self._path):
            self._fs.makedirs(posixpath.dirname(self._path), exist_ok=True)
            self._file = self._fs.open(self._path, "wb")
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._fs.exists(self._path):
            self._fs.rm_file(self._path)

    def check_size(self, size_bytes: int) -> None:
        """Raise TooLarge if this many bytes, announced or received, exceed the limit."""
        if size_bytes > self._limit_bytes:
            raise TooLarge(
                f"the upload is larger than {self._limit_bytes} bytes, the server's limit",
                hint="raise MALLORN_MAX_MODEL_BYTES on the coordinator",
            )

    def write(self, chunk: bytes) -> None:
        """Write the next bytes. Raises TooLarge above the limit, else the store's errors."""
        self.size_bytes += len(chunk)
        self.check_size(self.size_bytes)
        self._hash.update(chunk)
        assert self._file is not None  # noqa: S101 - entered
        with convert_store_errors(self._path):
            self._file.write(chunk)

    def close_and_hash(self) -> str:
        """Close the file; return its SHA-256. Raises InvalidRequest for an empty upload."""
        if self.size_bytes == 0:
            message = "the upload is empty"
            raise InvalidRequest(message, hint="curl -T model.onnx URL/api/v1/models?name=model.onnx")
        with convert_store_errors(self._path):
            self._close()
        return self._hash.hexdigest()

    def move_to_final_path(self) -> None:
        """Move the complete upload to its final place, which is named by its SHA-256."""
        self.move(model_uri(self._artifacts, self._hash.hexdigest()))

    def move(self, uri: str) -> None:
        """Move the complete upload to a URI in the same store; make its directory."""
        with convert_store_errors(self._path):
            _, path = open_store(uri)
            self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
            self._fs.mv(self._path, path)

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


@contextmanager
def convert_store_errors(file: str) -> Iterator[None]:
    """Convert an OSError to StorageFull or HostFault if this host failed, else StoreAway."""
    try:
        yield
    except OSError as error:
        if (host_error := explain_os_error(error, file)) is not None:
            raise host_error from error
        raise store_away_error(file, error) from error
