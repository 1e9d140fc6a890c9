"""Upload of a model, skipped if the coordinator has it and resumed if it broke."""

import hashlib
import mmap
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

from mallorn.client.http_connection import AnswerLost, Connection, Retries
from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.core.detect_non_onnx_format import SAMPLE_BYTES, foreign_format
from mallorn.core.errors import Forbidden, InvalidModel, NotFound, TooMany, Unavailable
from mallorn.core.storable_json import TOLD, quote_untrusted
from mallorn.core.values.dataset import MODEL, SAMPLES, UploadStatus
from mallorn.graphc.onnx.protobuf_fields import GRAPH, CutShort, NoMessage, fields, nested_fields, number_of

CHUNK_BYTES: Final = 1 << 20
Progress = Callable[[int, int], None]  # bytes sent, bytes in all
PARTS_FROM_BYTES: Final = 64 << 20  # larger models are uploaded in parts
PART_RETRIES: Final = 6
PART_TIMEOUT_SEC: Final = 120.0  # for a connection that stalls
PATIENCE_SEC: Final = 300.0
LOOK_EVERY_SEC: Final = 2.0
# Numbers of fields in onnx.proto.
IR_VERSION, INITIALIZER, INPUT = 1, 5, 11
TENSOR_NAME, EXTERNAL_DATA, KEY, VALUE = 8, 13, 1, 2
INPUT_NAME, SIZE, SIZE_NAME = 1, 1, 2
MOST_SIZE: Final = 1 << 31  # a negative size is read as a larger number, and means a free dimension
DIMENSION: Final = (2, 1, 2, 1)  # path from an input: its type, the tensor's type, its shape


@dataclass(frozen=True, slots=True)
class ModelUpload:
    """A model as a stream: its file, or a tar with its weight files and with inputs for
    checks; reproducible bytes."""

    model: Path
    weights: tuple[str, ...]  # file names relative to the model's directory
    samples: Path | None = None  # inputs for checks

    @classmethod
    def of(cls, model: Path, samples: Path | None = None) -> Self:
        """Check an ONNX file. Raises InvalidModel if invalid or without a weight file, or
        if there is no file of samples."""
        if samples is not None and not samples.is_file():
            raise InvalidModel(f"there is no file {samples} with inputs", hint=f"ls {samples.parent}")
        weights = tuple(check_onnx_file(model))
        for name in weights:
            place = Path(name)
            try:
                is_inside = not place.is_absolute() and ".." not in place.parts
                has_file = is_inside and (model.parent / place).is_file()
            except OSError:  # the name is not a valid file name
                has_file = False
            if not has_file:
                raise InvalidModel(
                    f"{str(model)!r} has weights in {name[:TOLD]!r}, which is not in the same folder",
                    hint=f"ls {model.parent}   (copy {quote_untrusted(name)} there, or export the model "
                    "again)",
                )
        return cls(model, weights, samples)

    @property
    def size_bytes(self) -> int:
        """Number of bytes in the stream."""
        if not self._is_archive:
            return self.model.stat().st_size
        total = len(_END)
        for header, file in self._members():
            size_bytes = file.stat().st_size
            total += len(header) + size_bytes + -size_bytes % tarfile.BLOCKSIZE
        return total

    def chunks(self) -> Iterator[bytes]:
        if not self._is_archive:
            yield from _content(self.model)
            return
        for header, file in self._members():
            yield header
            yield from _content(file)
            yield bytes(-file.stat().st_size % tarfile.BLOCKSIZE)
        yield _END

    def parts(self, part_bytes: int) -> Iterator[bytes]:
        """Yield the stream in parts of this size; the last may be smaller."""
        part = bytearray()
        for chunk in self.chunks():
            part += chunk
            while len(part) >= part_bytes:
                yield bytes(part[:part_bytes])
                del part[:part_bytes]
        if part:
            yield bytes(part)

    def compute_id(self) -> str:
        """Return the id that the coordinator gives the model: the SHA-256 of the stream."""
        content_hash = hashlib.sha256()
        for chunk in self.chunks():
            content_hash.update(chunk)
        return content_hash.hexdigest()

    @property
    def _is_archive(self) -> bool:
        return bool(self.weights) or self.samples is not None

    def _members(self) -> Iterator[tuple[bytes, Path]]:
        files = [(MODEL, self.model), *((name, self.model.parent / name) for name in self.weights)]
        for name, file in [*files, (SAMPLES, self.samples)] if self.samples is not None else files:
            header = tarfile.TarInfo(name)
            header.size = file.stat().st_size
            yield header.tobuf(tarfile.GNU_FORMAT), file


_END: Final = bytes(2 * tarfile.BLOCKSIZE)


def _content(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


class Uploader:
    """Uploads a model, unless the coordinator has it; a large one in parts, so that it can be resumed.

    The model's hash also finds it when a proxy times out before a slow artifact store has
    stored a large model, which can take longer than a minute.
    """

    def __init__(self, connection: Connection, model: ModelUpload, progress: Progress | None) -> None:
        self._connection = connection
        self._model = model
        self._progress = progress or (lambda *_: None)
        self._size_bytes = model.size_bytes
        self._sent_bytes = 0
        self._model_id = model.compute_id()

    def upload(self, name: str) -> Any:
        """Return the coordinator's answer; if that is lost, poll for the model.

        Raises AnswerLost if the model does not appear within PATIENCE_SEC.
        """
        with suppress(NotFound, Forbidden):  # a key may upload without the scope `read`
            model = self._connection.get(f"/models/{self._model_id}")
            self._progress(self._size_bytes, self._size_bytes)
            return model
        try:
            if self._size_bytes > PARTS_FROM_BYTES:
                with suppress(NotFound, Forbidden):  # the coordinator is too old, or the key may not read
                    status = self._connection.value(UploadStatus, f"/uploads/{self._model_id}")
                    self.send_parts(status)
                    path = f"/uploads/{self._model_id}/complete?{urlencode({'name': name})}"
                    return self._connection.post(path, read_sec=PATIENCE_SEC)
            self._sent_bytes = 0
            chunks = self._count(self._model.chunks())
            return self._connection.put("/models", chunks, self._size_bytes, name=name)
        except AnswerLost:
            deadline_sec = time.monotonic() + PATIENCE_SEC
            while self._sent_bytes == self._size_bytes and time.monotonic() < deadline_sec:
                try:
                    return self._connection.get(f"/models/{self._model_id}")
                except (NotFound, Unavailable):
                    time.sleep(LOOK_EVERY_SEC)
            raise

    def send_parts(self, status: UploadStatus) -> None:
        """Send the parts that the coordinator lacks; retry each after a break."""
        for index, part in enumerate(self._model.parts(status.part_bytes)):
            first_byte, retries = self._sent_bytes, Retries(PART_RETRIES)
            while index not in status.parts:
                offsets = range(0, len(part), CHUNK_BYTES)
                pieces = (part[offset : offset + CHUNK_BYTES] for offset in offsets)
                path = f"/uploads/{self._model_id}/parts/{index}"
                try:
                    self._connection.put(path, self._count(pieces), len(part), timeout_sec=PART_TIMEOUT_SEC)
                    break
                except (TooMany, Unavailable) as error:
                    self._sent_bytes = first_byte
                    arrived = f"{first_byte:,} of {self._size_bytes:,} bytes of the model arrived"
                    hint = f"{error.hint}   (then the same command: it sends only the rest)"
                    error.message, error.hint = f"{error.message}; {arrived}", hint
                    retries.pause_after(error)
            self._sent_bytes = first_byte + len(part)
            self._progress(self._sent_bytes, self._size_bytes)

    def _count(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            self._sent_bytes += len(chunk)
            self._progress(self._sent_bytes, self._size_bytes)


def check_onnx_file(file: Path) -> list[str]:
    """Return the names of an ONNX file's weight files. Raises InvalidModel if invalid."""
    try:
        with _open_view(file) as view:
            if foreign := foreign_format(bytes(view[:SAMPLE_BYTES]) + bytes(view[-SAMPLE_BYTES:])):
                hint = foreign.hint.replace("MODEL", str(file))
                raise InvalidModel(f"{str(file)!r} is {foreign.name}, not ONNX", hint=hint)
            names = set[str]()
            for start, end in nested_fields(view, GRAPH, INITIALIZER, EXTERNAL_DATA):
                values = {
                    number: bytes(view[first:last]) for number, _, first, last in fields(view, start, end)
                }
                if values.get(KEY) == b"location":
                    names.add(values.get(VALUE, b"").decode(errors="replace"))
            if {-IR_VERSION, GRAPH} <= {number for number, *_ in fields(view, 0, len(view))}:
                return sorted(names)
    except OSError as error:
        raise InvalidModel(f"cannot read {str(file)!r}: {error.strerror}", hint=f"ls -l {file}") from None
    except CutShort:
        message = f"{str(file)!r} is not an ONNX model, or it was cut short"
        raise InvalidModel(message, hint="copy or export the model again") from None
    except NoMessage:
        pass
    raise InvalidModel(f"{str(file)!r} is not an ONNX model", hint="give the path of an .onnx file")


def find_free_inputs(file: Path, options: OptionKwargs) -> dict[str, list[int | str]]:
    """Return the shapes of an ONNX file's inputs whose free dimensions `options` do not
    fix: sizes, and names of free dimensions (`?` without one)."""
    free: dict[str, list[int | str]] = {}
    if options.get("dynamic"):
        return free
    with _open_view(file) as view, suppress(NoMessage):  # the service says what is wrong with the file

        def texts(start: int, end: int, *path: int) -> list[str]:
            places = nested_fields(view, *path, within=(start, end))
            return [bytes(view[first:last]).decode(errors="replace") for first, last in places]

        fixed = {*texts(0, len(view), GRAPH, INITIALIZER, TENSOR_NAME), *(options.get("input_shapes") or ())}
        for start, end in nested_fields(view, GRAPH, INPUT):
            name = "".join(texts(start, end, INPUT_NAME))
            shape: list[int | str] = [
                size if 0 < size < MOST_SIZE else "".join(texts(*dimension, SIZE_NAME)) or "?"
                for dimension in nested_fields(view, *DIMENSION, within=(start, end))
                for size in [number_of(view, *dimension, SIZE) or 0]
            ]
            if name not in fixed and any(isinstance(item, str) for item in shape):
                free[name] = shape
    return free


@contextmanager
def _open_view(file: Path) -> Iterator[memoryview]:
    with (
        file.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        yield view
