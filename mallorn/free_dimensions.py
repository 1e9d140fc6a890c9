"""Find a model's free dimensions before it is uploaded, and say which options fix them."""

import mmap
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import InvalidModel
from mallorn.model_upload import (
    BYTES,
    GRAPH,
    INITIALIZER,
    Field,
    NoProtobuf,
    fields,
    find_fields,
    read_varint,
)

# Numbers of fields in onnx.proto.
INPUT, TENSOR_NAME, VALUE_NAME, SIZE, SIZE_NAME = 11, 8, 1, 1, 2
DIMENSION: Final = (2, 1, 2, 1)  # path from an input: its type, the tensor's type, its shape
Shapes = Mapping[str, list[int | str]]  # by input: sizes, and names of free dimensions ("?" without one)


def find_free_inputs(file: Path, options: Mapping[str, Any]) -> Shapes:
    """Return the shapes of an ONNX file's inputs whose free dimensions `options` do not fix."""
    free: dict[str, list[int | str]] = {}
    if options.get("dynamic"):
        return free
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:

        def text(field: Field) -> str:
            return data[field.start : field.end].decode(errors="replace")

        def size(dimension: Field) -> int | str:
            parts = {field.number: field for field in fields(data, dimension.start, dimension.end)}
            if SIZE in parts:
                return read_varint(data, parts[SIZE].start, parts[SIZE].end)[0] or "?"
            return text(parts[SIZE_NAME]) or "?" if SIZE_NAME in parts else "?"

        model = Field(0, BYTES, 0, len(data))
        with suppress(NoProtobuf):  # the service says what is wrong with the file
            fixed = {text(name) for name in find_fields(data, model, GRAPH, INITIALIZER, TENSOR_NAME)}
            fixed.update(options.get("input_shapes") or ())
            for value in find_fields(data, model, GRAPH, INPUT):
                name = "".join(map(text, find_fields(data, value, VALUE_NAME)))
                shape = [size(dimension) for dimension in find_fields(data, value, *DIMENSION)]
                if name not in fixed and any(isinstance(item, str) for item in shape):
                    free[name] = shape
    return free


def free_dimensions_error(free: Shapes, fixed: Mapping[str, Any] | None) -> InvalidModel:
    """Return an error with the options that fix the inputs `free`; `fixed` shapes are given already."""
    texts = [f"{name} [{', '.join(map(str, shape))}]" for name, shape in free.items()]
    bound = {name: [size if isinstance(size, int) else 1 for size in shape] for name, shape in free.items()}
    hint = " ".join(f"--input-shape {name}:{','.join(map(str, shape))}" for name, shape in bound.items())
    names = dict.fromkeys(size for shape in free.values() for size in shape if isinstance(size, str))
    if "?" not in names:
        hint += f"   or, for a range,  {' '.join(f'--dynamic {name}=1..64' for name in names)}"
    message = f"these inputs have free dimensions: {'; '.join(texts)}"
    return InvalidModel(message, hint=hint, suggest={"input_shapes": {**(fixed or {}), **bound}})
