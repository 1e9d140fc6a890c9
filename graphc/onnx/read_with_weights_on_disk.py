"""Reads an ONNX file, or one with its weights in files beside it, and leaves the weights where they are.

A model is parsed, checked and rewritten many times over, each time as a copy. So heavy tensors become
references to their bytes on the disk, which are read once, when TVM takes them.
"""

import mmap
import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import _get_all_tensors
from tvm.relax.frontend.onnx import onnx_frontend

from graphc.onnx import protobuf_fields

HEAVY_BYTES = 1 << 16
TOLD = 80  # characters of a name
PLACE = re.compile("[0-9]{1,18}")
INITIALIZER, RAW_DATA = 5, 9  # numbers of fields in onnx.proto


class Missing(ValueError):
    """The data of a tensor is not where the model says."""


def read(path: str | Path) -> ModelProto:
    """The model of a file, heavy weights as references. Raises DecodeError, OSError, Missing."""
    file = Path(path).absolute()
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        model = _parse(data, file)
    return model


def teach(read_array: Callable[[TensorProto], Any]) -> None:
    """Let the importer read tensors so, from now on: by `array`, or as that is made of it."""
    onnx_frontend.get_numpy = read_array


def array(tensor: TensorProto) -> Any:
    """A tensor's elements; those of a heavy one are read from the disk as they are used."""
    wide = _WIDE.get(tensor.data_type)
    if tensor.data_location != TensorProto.EXTERNAL:
        found = numpy_helper.to_array(tensor)
        return found if wide is None else found.astype(wide)
    place = {entry.key: entry.value for entry in tensor.external_data}
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if wide is None:
        return np.memmap(place["location"], kind, "r", int(place["offset"]), tuple(tensor.dims))
    count = -(-prod(tensor.dims) // 2)
    halves = np.memmap(place["location"], "uint8", "r", int(place["offset"]), (count,))
    # Numbers of four bits, the lower half of a byte first, become bytes: TVM has none so small.
    found = np.stack([halves & 0xF, halves >> 4], -1).reshape(-1)
    found = found[: prod(tensor.dims)].reshape(tuple(tensor.dims))
    return found if wide == "uint8" else ((found ^ 8).view("int8") - 8)


def _parse(data: mmap.mmap, file: Path) -> ModelProto:
    """The model, without ever reading what is heavy in it."""
    model = ModelProto()
    with memoryview(data) as view:
        try:
            rest, graph, heavy = _sorted(view)
        except protobuf_fields.NoMessage:
            model.ParseFromString(view)  # which says what is wrong
            return model
        model.ParseFromString(rest)
        model.graph.ParseFromString(graph)
    for tensor in _get_all_tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            _settle(tensor, file)
    for light, start, size in heavy:
        tensor = model.graph.initializer.add()
        tensor.ParseFromString(light)
        _refer(tensor, file, start, size)
    return model


def _sorted(view: memoryview) -> tuple[bytes, bytes, list[tuple[bytes, int, int]]]:
    """What is no graph, the graph without heavy weights, and each of these: the rest, where its data is."""
    rest, graph, heavy = bytearray(), bytearray(), []
    for number, begin, start, end in protobuf_fields.fields(view, 0, len(view)):
        if number != protobuf_fields.GRAPH:
            rest += view[begin:end]
            continue
        for inner, first, content, last in protobuf_fields.fields(view, start, end):
            found = _heavy(view, content, last) if inner == INITIALIZER else None
            if found is None:
                graph += view[first:last]
            else:
                heavy.append(found)
    return bytes(rest), bytes(graph), heavy


def _heavy(view: memoryview, start: int, end: int) -> tuple[bytes, int, int] | None:
    """A tensor without its data and where that is, unless all of it is little."""
    if end - start < HEAVY_BYTES:
        return None
    light, place = bytearray(), None
    for number, begin, content, last in protobuf_fields.fields(view, start, end):
        if number == RAW_DATA:
            place = content, last - content
        else:
            light += view[begin:last]
    tensor = TensorProto()
    tensor.ParseFromString(light)
    if place is None or place[1] < HEAVY_BYTES or _bytes_of(tensor) != place[1]:
        return None
    return bytes(light), *place


def _settle(tensor: TensorProto, file: Path) -> None:
    """Point a tensor to where its data is, or read it, if it is little. Raises Missing."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    named = said.get("location", "")
    told = f"tensor {tensor.name[:TOLD]!r} keeps its data in the file {named[:TOLD]!r}"
    place, beside = Path(named), file.parent / named
    if not named or place.is_absolute() or ".." in place.parts or not _is_file(beside):
        raise Missing(f"{told}, which is not beside the model")
    offset, size = said.get("offset") or "0", _bytes_of(tensor)
    if size is None:
        raise Missing(f"{told}, and elements of its type share bytes")
    if not PLACE.fullmatch(offset) or int(offset) + size > beside.stat().st_size:
        raise Missing(f"{told}, which is too short for it")
    _refer(tensor, beside, int(offset), size)
    if size < HEAVY_BYTES:
        tensor.CopyFrom(numpy_helper.from_array(np.array(array(tensor)), tensor.name))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no name that a file could have
        return False


def _refer(tensor: TensorProto, file: Path, offset: int, size: int) -> None:
    tensor.ClearField("external_data")
    for key, value in (("location", file), ("offset", offset), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))
    tensor.data_location = TensorProto.EXTERNAL


def _bytes_of(tensor: TensorProto) -> int | None:
    """How many bytes the data of a tensor has; None where that is not known."""
    count = None if any(size < 0 for size in tensor.dims) else int(prod(tensor.dims))
    if count is not None and tensor.data_type in _WIDE:
        return -(-count // 2)
    return count * _SIZES[tensor.data_type] if count is not None and tensor.data_type in _SIZES else None


# By what they are read as, where two share a byte.
_WIDE = {int(TensorProto.INT4): "int8", int(TensorProto.UINT4): "uint8"}
# Others share bytes, too, or are no numbers.
_KINDS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "INT16", "INT32", "INT64")
_SIZES = {
    number: helper.tensor_dtype_to_np_dtype(number).itemsize
    for name, number in TensorProto.DataType.items()
    if name in (*_KINDS, "UINT8", "UINT16", "UINT32", "UINT64", "BOOL")
}
