"""Upload of a model, skipped if the coordinator has it and resumed if it broke."""

import hashlib
import mmap
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

from mallorn.client.http_connection import AnswerLost, Connection, Retries
from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.core.detect_non_onnx_format import SAMPLE_BYTES, foreign_format
from mallorn.core.errors import Forbidden, InvalidModel, NotFound, TooMany, Unavailable
from mallorn.core.storable_json import TOLD, quote_untrusted
from mallorn.core.values.dataset import MODEL, UploadStatus

CHUNK_BYTES: Final = 1 << 20
Progress = Callable[[int, int], None]  # bytes sent, bytes in all
PARTS_FROM_BYTES: Final = 64 << 20  # larger models are uploaded in parts
PART_RETRIES: Final = 6
PART_TIMEOUT_SEC: Final = 120.0  # for a connection that stalls
PATIENCE_SEC: Final = 300.0
LOOK_EVERY_SEC: Final = 2.0
# Numbers of fields in onnx.proto.
IR_VERSION, GRAPH, INITIALIZER, INPUT = 1, 7, 5, 11
TENSOR_NAME, EXTERNAL_DATA, KEY, VALUE = 8, 13, 1, 2
INPUT_NAME, SIZE, SIZE_NAME = 1, 1, 2
DIMENSION: Final = (2, 1, 2, 1)  # path from an input: its type, the tensor's type, its shape
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIDTHS: Final = {FIXED64: 8, FIXED32: 4}


@dataclass(frozen=True, slots=True)
class ModelUpload:
    """A model as a stream: its file, or a tar with its weight files; reproducible bytes."""

    model: Path
    weights: tuple[str, ...]  # file names relative to the model's directory

    @classmethod
    def of(cls, model: Path) -> Self:
        """Check an ONNX file. Raises InvalidModel if invalid or without a weight file."""
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
        return cls(model, weights)

    @property
    def size_bytes(self) -> int:
        """Number of bytes in the stream."""
        if not self.weights:
            return self.model.stat().st_size
        total = len(_END)
        for header, file in self._members():
            size_bytes = file.stat().st_size
            total += len(header) + size_bytes + -size_bytes % tarfile.BLOCKSIZE
        return total

    def chunks(self) -> Iterator[bytes]:
        if not self.weights:
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

    def _members(self) -> Iterator[tuple[bytes, Path]]:
        for name, file in (MODEL, self.model), *((name, self.model.parent / name) for name in self.weights):
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


class NoProtobuf(ValueError):
    """The bytes are not a protobuf message."""


class CutShort(NoProtobuf):
    """A field extends beyond the end of the message."""


@dataclass(frozen=True, slots=True)
class Field:
    """Number, wire type and byte range of one field of a protobuf message."""

    number: int
    kind: int
    start: int
    end: int


def check_onnx_file(file: Path) -> list[str]:
    """Return the names of an ONNX file's weight files. Raises InvalidModel if invalid."""
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            foreign = foreign_format(data[:SAMPLE_BYTES] + data[-SAMPLE_BYTES:])
            if foreign:
                hint = foreign.hint.replace("MODEL", str(file))
                raise InvalidModel(f"{str(file)!r} is {foreign.name}, not ONNX", hint=hint)
            model, names = Field(0, BYTES, 0, len(data)), set[str]()
            for entry in find_fields(data, model, GRAPH, INITIALIZER, EXTERNAL_DATA):
                values = {part.number: data[part.start : part.end] for part in fields(data, entry)}
                if values.get(KEY) == b"location":
                    names.add(values.get(VALUE, b"").decode(errors="replace"))
            kinds = {(part.number, part.kind) for part in fields(data, model)}
            if {(IR_VERSION, VARINT), (GRAPH, BYTES)} <= kinds:
                return sorted(names)
    except OSError as error:
        raise InvalidModel(f"cannot read {str(file)!r}: {error.strerror}", hint=f"ls -l {file}") from None
    except CutShort:
        message = f"{str(file)!r} is not an ONNX model, or it was cut short"
        raise InvalidModel(message, hint="copy or export the model again") from None
    except NoProtobuf:
        pass
    raise InvalidModel(f"{str(file)!r} is not an ONNX model", hint="give the path of an .onnx file")


def find_fields(data: mmap.mmap, parent: Field, *path: int) -> Iterator[Field]:
    """Iterate over the fields of bytes at a path of numbers below `parent`. Raises NoProtobuf."""
    for field in fields(data, parent):
        if (field.number, field.kind) == (path[0], BYTES):
            yield from find_fields(data, field, *path[1:]) if path[1:] else (field,)


def find_free_inputs(file: Path, options: OptionKwargs) -> dict[str, list[int | str]]:
    """Return the shapes of an ONNX file's inputs whose free dimensions `options` do not
    fix: sizes, and names of free dimensions (`?` without one)."""
    free: dict[str, list[int | str]] = {}
    if options.get("dynamic"):
        return free
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:

        def text(field: Field) -> str:
            return data[field.start : field.end].decode(errors="replace")

        def size(dimension: Field) -> int | str:
            parts = {field.number: field for field in fields(data, dimension)}
            if SIZE in parts:
                return _varint(data, parts[SIZE].start, parts[SIZE].end)[0] or "?"
            return text(parts[SIZE_NAME]) or "?" if SIZE_NAME in parts else "?"

        model = Field(0, BYTES, 0, len(data))
        with suppress(NoProtobuf):  # the service says what is wrong with the file
            fixed = {text(name) for name in find_fields(data, model, GRAPH, INITIALIZER, TENSOR_NAME)}
            fixed.update(options.get("input_shapes") or ())
            for value in find_fields(data, model, GRAPH, INPUT):
                name = "".join(map(text, find_fields(data, value, INPUT_NAME)))
                shape = [size(dimension) for dimension in find_fields(data, value, *DIMENSION)]
                if name not in fixed and any(isinstance(item, str) for item in shape):
                    free[name] = shape
    return free


def fields(data: mmap.mmap, parent: Field) -> Iterator[Field]:
    """Iterate over the fields of a protobuf message. Raises NoProtobuf if it is invalid."""
    position, end = parent.start, parent.end
    while position < end:
        key, position = _varint(data, position, end)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            begin_at, (_, position) = position, _varint(data, position, end)
        elif kind == BYTES:
            length, begin_at = _varint(data, position, end)
            position = begin_at + length
        elif kind in WIDTHS and number:
            begin_at, position = position, position + WIDTHS[kind]
        else:
            raise NoProtobuf
        if position > end:
            raise CutShort
        yield Field(number, kind, begin_at, position)


def _varint(data: mmap.mmap, start: int, end: int) -> tuple[int, int]:
    value = 0
    for offset in range(10):
        if start + offset >= end:
            raise CutShort
        byte = data[start + offset]
        value |= (byte & 0x7F) << (7 * offset)
        if byte < 0x80:
            return value, start + offset + 1
    raise NoProtobuf
