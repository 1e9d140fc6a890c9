"""Upload of a model as a stream; it succeeds even if the coordinator's answer is lost."""

import hashlib
import mmap
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from mallorn.core.detect_non_onnx_format import SAMPLE_BYTES, foreign_format
from mallorn.core.errors import InvalidModel, NotFound, Unavailable
from mallorn.core.storable_json import TOLD, quote_untrusted
from mallorn.http import AnswerLost, Connection

CHUNK_BYTES: Final = 1 << 20
MODEL: Final = "model.onnx"  # name of the tar's first member, whatever the file is called
Progress = Callable[[int, int], None]  # bytes sent, bytes in all
PATIENCE_SEC: Final = 300.0
LOOK_EVERY_SEC: Final = 2.0
# Numbers of fields in onnx.proto.
IR_VERSION, GRAPH = 1, 7
INITIALIZER: Final = 5
EXTERNAL_DATA: Final = 13
KEY, VALUE = 1, 2
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
                    f"weights of {str(model)!r} are in the file {name[:TOLD]!r}, which is not beside it",
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


class UploadStream:
    """Counts and hashes the chunks of a model while they are sent.

    The hash identifies the model when a proxy times out before a slow artifact store has
    stored a large model, which can take longer than a minute.
    """

    def __init__(self, chunks: Iterator[bytes], size_bytes: int, progress: Progress | None) -> None:
        self._chunks = chunks
        self._size_bytes = size_bytes
        self._progress = progress
        self._hash = hashlib.sha256()
        self._sent_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._hash.update(chunk)
            yield chunk
            self._sent_bytes += len(chunk)
            if self._progress is not None:
                self._progress(self._sent_bytes, self._size_bytes)

    def put(self, connection: Connection, name: str) -> Any:
        """Upload, and return the coordinator's answer; if that is lost, poll for the model.

        Raises AnswerLost if the model does not appear within PATIENCE_SEC.
        """
        try:
            return connection.put("/models", iter(self), self._size_bytes, name=name)
        except AnswerLost:
            deadline_sec = time.monotonic() + PATIENCE_SEC
            while self._sent_bytes == self._size_bytes and time.monotonic() < deadline_sec:
                try:
                    return connection.get(f"/models/{self._hash.hexdigest()}")
                except (NotFound, Unavailable):
                    time.sleep(LOOK_EVERY_SEC)
            raise


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
            top = list(fields(data, 0, len(data)))
            graphs = [field for field in top if (field.number, field.kind) == (GRAPH, BYTES)]
            if graphs and any(field.number == IR_VERSION for field in top):
                return sorted({name for graph in graphs for name in _locations(data, graph)})
    except OSError as error:
        raise InvalidModel(f"cannot read {str(file)!r}: {error.strerror}", hint=f"ls -l {file}") from None
    except CutShort:
        message = f"{str(file)!r} is not an ONNX model, or it was cut short"
        raise InvalidModel(message, hint="copy or export it again") from None
    except NoProtobuf:
        pass
    raise InvalidModel(f"{str(file)!r} is not an ONNX model", hint="give the path of an .onnx file")


def _locations(data: mmap.mmap, graph: Field) -> Iterator[str]:
    for tensor in fields(data, graph.start, graph.end):
        if (tensor.number, tensor.kind) != (INITIALIZER, BYTES):
            continue
        for entry in fields(data, tensor.start, tensor.end):
            if (entry.number, entry.kind) == (EXTERNAL_DATA, BYTES):
                pair = fields(data, entry.start, entry.end)
                values = {field.number: data[field.start : field.end] for field in pair}
                if values.get(KEY) == b"location":
                    yield values.get(VALUE, b"").decode(errors="replace")


def fields(data: mmap.mmap, start: int, end: int) -> Iterator[Field]:
    """Iterate over the fields of a protobuf message. Raises NoProtobuf if it is invalid."""
    position = start
    while position < end:
        key, position = read_varint(data, position, end)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            begin_at, (_, position) = position, read_varint(data, position, end)
        elif kind == BYTES:
            length, begin_at = read_varint(data, position, end)
            position = begin_at + length
        elif kind in WIDTHS and number:
            begin_at, position = position, position + WIDTHS[kind]
        else:
            raise NoProtobuf
        if position > end:
            raise CutShort
        yield Field(number, kind, begin_at, position)


def read_varint(data: mmap.mmap, start: int, end: int) -> tuple[int, int]:
    value = 0
    for offset in range(10):
        if start + offset >= end:
            raise CutShort
        byte = data[start + offset]
        value |= (byte & 0x7F) << (7 * offset)
        if byte < 0x80:
            return value, start + offset + 1
    raise NoProtobuf
