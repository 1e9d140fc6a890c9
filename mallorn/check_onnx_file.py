"""A look at an ONNX file without onnx: whether it is one, and whole, and in which files its weights lie.

Only the outermost fields of the protobuf are walked; weights are skipped and never read.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mallorn.core.detect_non_onnx_format import SAMPLE_BYTES, foreign_format
from mallorn.core.errors import InvalidModel

# Numbers of fields in onnx.proto.
IR_VERSION, GRAPH = 1, 7
INITIALIZER: Final = 5
EXTERNAL_DATA: Final = 13
KEY, VALUE = 1, 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIDTHS: Final = {FIXED64: 8, FIXED32: 4}


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
            return _weights_elsewhere(data, file)
    except OSError as error:
        raise InvalidModel(f"cannot read {str(file)!r}: {error.strerror}", hint=f"ls -l {file}") from None


def _weights_elsewhere(data: mmap.mmap, file: Path) -> list[str]:
    found = foreign_format(data[:SAMPLE_BYTES] + data[-SAMPLE_BYTES:])
    if found:
        hint = found.hint.replace("MODEL", str(file))
        raise InvalidModel(f"{str(file)!r} is {found.name}, not ONNX", hint=hint)
    try:
        top = list(fields(data, 0, len(data)))
        graphs = [field for field in top if (field.number, field.kind) == (GRAPH, BYTES)]
        if graphs and any(field.number == IR_VERSION for field in top):
            return sorted({name for graph in graphs for name in _locations(data, graph)})
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
