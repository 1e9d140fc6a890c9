"""Locate fields of a protobuf message without reading their content. Imports nothing heavy."""

from collections.abc import Iterator

GRAPH = 7  # field of the graph in ONNX's model
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
WIDTHS = {FIXED64: 8, FIXED32: 4}
LONGEST_VARINT = 10
Field = tuple[int, int, int, int]  # number (negative if not bytes), begin, content, end


class NoMessage(ValueError):
    """Raised for bytes that are no protobuf message."""


class CutShort(NoMessage):
    """Raised if a field extends beyond the end of its message."""


def fields(view: memoryview, start: int, end: int) -> Iterator[Field]:
    """Yield the message's fields between two offsets. Raises NoMessage if it is invalid."""
    offset = start
    while offset < end:
        begin = offset
        key, offset = varint(view, offset, end)
        number, kind = key >> 3, key & 7
        content = offset
        if kind == VARINT:
            _, offset = varint(view, offset, end)
        elif kind == BYTES:
            length, content = varint(view, offset, end)
            offset = content + length
        elif kind in WIDTHS:
            offset += WIDTHS[kind]
        else:
            raise NoMessage
        if not number:
            raise NoMessage
        if offset > end:
            raise CutShort
        yield number if kind == BYTES else -number, begin, content, offset


def varint(view: memoryview, offset: int, end: int) -> tuple[int, int]:
    value = 0
    for position in range(min(LONGEST_VARINT, end - offset)):
        byte = view[offset + position]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, offset + position + 1
    raise NoMessage if end - offset >= LONGEST_VARINT else CutShort


def nested_fields(
    view: memoryview, *path: int, within: tuple[int, int] | None = None
) -> Iterator[tuple[int, int]]:
    """Yield start and end of messages along a path of field numbers, from the whole view or
    from the message `within` two offsets. Raises NoMessage."""
    places = [within or (0, len(view))]
    for field_number in path:
        places = [
            (content, end)
            for low, high in places
            for number, _, content, end in fields(view, low, high)
            if number == field_number
        ]
    yield from places


def number_of(view: memoryview, start: int, end: int, field_number: int) -> int | None:
    """Return the integer of a message's field; None if it is absent. Raises NoMessage."""
    for number, begin, _, last in fields(view, start, end):
        if number == -field_number:
            _, content = varint(view, begin, last)
            return varint(view, content, last)[0]
    return None
