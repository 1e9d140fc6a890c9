"""Find a model's free dimensions before it is uploaded, and say which options fix them."""

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mallorn.core.errors import InvalidModel
from mallorn.model_upload import BYTES, GRAPH, INITIALIZER, VARINT, Field, NoProtobuf, fields, read_varint

# Numbers of fields in onnx.proto.
INPUT: Final = 11
TENSOR_NAME: Final = 8
VALUE_NAME: Final = 1
SHAPE: Final = (2, 1, 2)  # path from an input: its type, the tensor's type, its shape
DIM, DIM_VALUE, DIM_PARAM = 1, 1, 2
Shapes = dict[str, list[int | str]]  # by input: sizes, and names of free dimensions ("?" without one)


def find_free_inputs(file: Path) -> Shapes:
    """Return the shapes of an ONNX file's inputs that have free dimensions."""
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            graphs = _of(data, Field(0, BYTES, 0, len(data)), GRAPH)
            shapes = {name: shape for graph in graphs for name, shape in _inputs(data, graph)}
        except NoProtobuf:  # the upload says what is wrong with the file
            return {}
    return {name: shape for name, shape in shapes.items() if any(isinstance(dim, str) for dim in shape)}


def refuse_free_dimensions(file: Path, options: Mapping[str, object]) -> None:
    """Raise InvalidModel, with the options to give, unless `options` fix all free dimensions."""
    shapes = options.get("input_shapes") or {}
    free = {} if options.get("dynamic") else find_free_inputs(file)
    free = {name: shape for name, shape in free.items() if name not in shapes}  # type: ignore[operator]
    if not free:
        return
    texts = [f"{name} [{', '.join(map(str, shape))}]" for name, shape in free.items()]
    sizes = {
        name: ",".join(str(dim if isinstance(dim, int) else 1) for dim in shape)
        for name, shape in free.items()
    }
    hint = " ".join(f"--input-shape {name}:{text}" for name, text in sizes.items())
    names = dict.fromkeys(dim for shape in free.values() for dim in shape if isinstance(dim, str))
    if "?" not in names:
        hint += f"   or, for a range,   {' '.join(f'--dynamic {name}=1..64' for name in names)}"
    raise InvalidModel(f"these inputs have free dimensions: {'; '.join(texts)}", hint=hint)


def _inputs(data: mmap.mmap, graph: Field) -> Iterator[tuple[str, list[int | str]]]:
    weights = {
        _text(data, name)
        for tensor in _of(data, graph, INITIALIZER)
        for name in _of(data, tensor, TENSOR_NAME)
    }
    for value in _of(data, graph, INPUT):
        name = next((_text(data, part) for part in _of(data, value, VALUE_NAME)), "")
        parts = [value]
        for number in SHAPE:
            parts = [inner for part in parts for inner in _of(data, part, number)]
        if name not in weights:
            yield name, [_size(data, dim) for part in parts for dim in _of(data, part, DIM)]


def _size(data: mmap.mmap, dim: Field) -> int | str:
    for field in fields(data, dim.start, dim.end):
        if (field.number, field.kind) == (DIM_VALUE, VARINT) and (
            size := read_varint(data, field.start, field.end)[0]
        ):
            return size
        if (field.number, field.kind) == (DIM_PARAM, BYTES) and field.end > field.start:
            return _text(data, field)
    return "?"


def _of(data: mmap.mmap, parent: Field, number: int) -> Iterator[Field]:
    for field in fields(data, parent.start, parent.end):
        if (field.number, field.kind) == (number, BYTES):
            yield field


def _text(data: mmap.mmap, field: Field) -> str:
    return data[field.start : field.end].decode(errors="replace")
