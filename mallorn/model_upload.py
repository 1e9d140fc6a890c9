"""A model on its way up: what is sent of it, and how it is looked for where the answer got lost."""

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
from mallorn.core.storable_json import TOLD, told
from mallorn.http import AnswerLost, Connection

CHUNK_BYTES: Final = 1 << 20
MODEL: Final = "model.onnx"  # comes first in the tar, under the same name whatever the file is called
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
    """Files as one stream of bytes, the same bytes whenever their contents are; nothing is copied or held."""

    model: Path
    weights: tuple[str, ...]  # names beside the model

    @classmethod
    def of(cls, model: Path) -> Self:
        """The parcel of an ONNX file. Raises InvalidModel for what is no whole model, or has lost weights."""
        weights = tuple(check_onnx_file(model))
        missing = [name for name in weights if not _is_beside(model, name)]
        if missing:
            raise InvalidModel(
                f"weights of {str(model)!r} are in the file {missing[0][:TOLD]!r}, which is not beside it",
                hint=f"ls {model.parent}   (copy {told(missing[0])} there, or export the model again)",
            )
        return cls(model, weights)

    @property
    def size_bytes(self) -> int:
        """How long the stream is."""
        if not self.weights:
            return self.model.stat().st_size
        total = len(_END)
        for head, file in self._members():
            size_bytes = file.stat().st_size
            total += len(head) + size_bytes + -size_bytes % tarfile.BLOCKSIZE
        return total

    def chunks(self) -> Iterator[bytes]:
        """The stream, piece by piece."""
        if not self.weights:
            yield from _content(self.model)
            return
        for head, file in self._members():
            yield head
            yield from _content(file)
            yield bytes(-file.stat().st_size % tarfile.BLOCKSIZE)
        yield _END

    def _members(self) -> Iterator[tuple[bytes, Path]]:
        for name, file in (MODEL, self.model), *((name, self.model.parent / name) for name in self.weights):
            head = tarfile.TarInfo(name)
            head.size = file.stat().st_size
            yield head.tobuf(tarfile.GNU_FORMAT), file


_END: Final = bytes(2 * tarfile.BLOCKSIZE)


def _is_beside(model: Path, name: str) -> bool:
    place = Path(name)
    try:
        return not place.is_absolute() and ".." not in place.parts and (model.parent / place).is_file()
    except OSError:  # no name that a file could have
        return False


def _content(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


class UploadStream:
    """The pieces of a model, counted and hashed as they are sent.

    A proxy gives up on a coordinator that is silent for a minute, and a slow store may need longer than that
    to put a large model in its place.
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
        """What the coordinator says of the model. Raises AnswerLost if it does not turn up there either."""
        try:
            return connection.put("/models", iter(self), self._size_bytes, name=name)
        except AnswerLost:
            until_sec = time.monotonic() + PATIENCE_SEC
            while self._sent_bytes == self._size_bytes and time.monotonic() < until_sec:
                try:
                    return connection.get(f"/models/{self._hash.hexdigest()}")
                except (NotFound, Unavailable):
                    time.sleep(LOOK_EVERY_SEC)
            raise


class NoProtobuf(ValueError):
    """These bytes are no protobuf."""


class CutShort(NoProtobuf):
    """A field is announced that goes on behind the end."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: where its bytes lie."""

    number: int
    kind: int
    start: int
    end: int


def check_onnx_file(file: Path) -> list[str]:
    """The files beside it that hold its weights. Raises InvalidModel for what is not a whole ONNX model."""
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = foreign_format(data[:SAMPLE_BYTES] + data[-SAMPLE_BYTES:])
            if found:
                hint = found.hint.replace("MODEL", str(file))
                raise InvalidModel(f"{str(file)!r} is {found.name}, not ONNX", hint=hint)
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
                inside = fields(data, entry.start, entry.end)
                said = {field.number: data[field.start : field.end] for field in inside}
                if said.get(KEY) == b"location":
                    yield said.get(VALUE, b"").decode(errors="replace")


def fields(data: mmap.mmap, start: int, end: int) -> Iterator[Field]:
    """The fields of the message between two places. Raises NoProtobuf."""
    at = start
    while at < end:
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            begin, (_, at) = at, _varint(data, at, end)
        elif kind == BYTES:
            length, begin = _varint(data, at, end)
            at = begin + length
        elif kind in WIDTHS and number:
            begin, at = at, at + WIDTHS[kind]
        else:
            raise NoProtobuf
        if at > end:
            raise CutShort
        yield Field(number, kind, begin, at)


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    """A number of as many bytes as it takes, and the place behind it."""
    value = 0
    for position in range(10):
        if at + position >= end:
            raise CutShort
        byte = data[at + position]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, at + position + 1
    raise NoProtobuf
