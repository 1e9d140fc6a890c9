"""Read an ONNX file, with weights inside or in files next to it, and leave weights on disk.

A model is parsed, checked and rewritten many times, each time as a copy. So large tensors
become references to their bytes on disk, which are read once, when TVM converts them.
"""

import mmap
import re
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import _get_all_tensors

from mallorn.graphc.onnx import protobuf_fields
from mallorn.graphc.onnx.normalize_model import normalize

HEAVY_BYTES = 1 << 16
LONGEST_NAME = 80  # longest part of a name in messages
PLACE = re.compile("[0-9]{1,18}")
INITIALIZER, RAW_DATA = 5, 9  # field numbers in onnx.proto


class Missing(ValueError):
    """Raised if a tensor's data is not where the model says."""


def read(path: str | Path) -> ModelProto:
    """Read and normalize a model; large weights stay on disk. Raises ``DecodeError``,
    OSError, Missing or Cycle."""
    file = Path(path).absolute()
    model, weights = _parse(file)
    for tensor in _get_all_tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            _resolve_data(tensor, file)
    for header, start, size in weights:
        tensor = model.graph.initializer.add()
        tensor.ParseFromString(header)
        _refer(tensor, file, start, size)
    normalize(model)
    return model


def list_weight_files(path: Path) -> list[str]:
    """Return the names of the files next to a model that hold weights. Raises ``DecodeError``."""
    places = [tensor.external_data for tensor in _get_all_tensors(_parse(path)[0])]
    return sorted({entry.value for place in places for entry in place if entry.key == "location"})


def read_tensor(tensor: TensorProto) -> Any:
    """Return a tensor's elements, 4-bit ones as bytes; data on disk is memory-mapped."""
    wide = _WIDE.get(tensor.data_type)
    if tensor.data_location != TensorProto.EXTERNAL:
        numbers = numpy_helper.to_array(tensor)
        return numbers if wide is None else numbers.astype(wide)
    place = {entry.key: entry.value for entry in tensor.external_data}
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if wide is None:
        return np.memmap(place["location"], kind, "r", int(place["offset"]), tuple(tensor.dims))
    count = -(-prod(tensor.dims) // 2)
    halves = np.memmap(place["location"], "uint8", "r", int(place["offset"]), (count,))
    # Numbers of 4 bits, lower half of a byte first, become bytes: TVM has no 4-bit type.
    numbers = np.stack([halves & 0xF, halves >> 4], -1).reshape(-1)
    numbers = numbers[: prod(tensor.dims)].reshape(tuple(tensor.dims))
    return numbers if wide == "uint8" else ((numbers ^ 8).view("int8") - 8)


def embed_weights(model: ModelProto) -> None:
    """Read the weights that a model refers to on disk into the model."""
    for tensor in _get_all_tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            place = {entry.key: entry.value for entry in tensor.external_data}
            with Path(place["location"]).open("rb") as file:
                file.seek(int(place["offset"]))
                tensor.raw_data = file.read(int(place["length"]))
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")


def _parse(file: Path) -> tuple[ModelProto, list[tuple[bytes, int, int]]]:
    """Return a model without its large weights, and these as `_split` does."""
    model = ModelProto()
    with (
        file.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        try:
            other_fields, graph, weights = _split(view)
        except protobuf_fields.NoMessage:
            model.ParseFromString(view)  # raises an error that says what is wrong
            return model, []
    model.ParseFromString(other_fields)
    model.graph.ParseFromString(graph)
    return model, weights


def _split(view: memoryview) -> tuple[bytes, bytes, list[tuple[bytes, int, int]]]:
    """Split a model file into fields outside the graph, the graph, and its large weights.

    A weight is given as its message without data, the data's offset, and its size in bytes.
    """
    other_fields, graph, weights = bytearray(), bytearray(), []
    for number, begin, start, end in protobuf_fields.fields(view, 0, len(view)):
        if number != protobuf_fields.GRAPH:
            other_fields += view[begin:end]
            continue
        for inner, first, content, last in protobuf_fields.fields(view, start, end):
            is_large = inner == INITIALIZER and last - content >= HEAVY_BYTES
            header, data_start, size = _read_tensor_header(view, content, last) if is_large else (b"", 0, 0)
            if header:
                weights.append((header, data_start, size))
            else:
                graph += view[first:last]
    return bytes(other_fields), bytes(graph), weights


def _read_tensor_header(view: memoryview, start: int, end: int) -> tuple[bytes, int, int]:
    """Return a tensor's message without data, the data's offset, size; empty if small."""
    header, offset, size = bytearray(), 0, 0
    for number, begin, content, last in protobuf_fields.fields(view, start, end):
        if number == RAW_DATA:
            offset, size = content, last - content
        else:
            header += view[begin:last]
    tensor = TensorProto()
    tensor.ParseFromString(header)
    if size < HEAVY_BYTES or _bytes_of(tensor) != size:
        return b"", 0, 0
    return bytes(header), offset, size


def _resolve_data(tensor: TensorProto, file: Path) -> None:
    """Make a tensor refer to its data file, or read small data at once. Raises Missing."""
    location = {entry.key: entry.value for entry in tensor.external_data}
    name = location.get("location", "")
    subject = f"tensor {tensor.name[:LONGEST_NAME]!r} keeps its data in the file {name[:LONGEST_NAME]!r}"
    place, data_file, is_file = Path(name), file.parent / name, False
    if name and not place.is_absolute() and ".." not in place.parts:
        with suppress(OSError):  # the name cannot be a file's
            is_file = data_file.is_file()
    if not is_file:
        raise Missing(f"{subject}, which is not in the same folder")
    offset, size = location.get("offset") or "0", _bytes_of(tensor)
    if size is None:
        raise Missing(f"{subject}, but elements of this type share bytes")
    if not PLACE.fullmatch(offset) or int(offset) + size > data_file.stat().st_size:
        raise Missing(f"{subject}, which is shorter than the tensor")
    _refer(tensor, data_file, int(offset), size)
    if size < HEAVY_BYTES:
        tensor.CopyFrom(numpy_helper.from_array(np.array(read_tensor(tensor)), tensor.name))


def _refer(tensor: TensorProto, file: Path, offset: int, size: int) -> None:
    tensor.ClearField("external_data")
    for key, value in (("location", file), ("offset", offset), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))
    tensor.data_location = TensorProto.EXTERNAL


def _bytes_of(tensor: TensorProto) -> int | None:
    count = None if any(size < 0 for size in tensor.dims) else int(prod(tensor.dims))
    if count is not None and tensor.data_type in _WIDE:
        return -(-count // 2)
    return count * _SIZES[tensor.data_type] if count is not None and tensor.data_type in _SIZES else None


# 4-bit types, two numbers to a byte, and the types that they are read as.
_WIDE = {int(TensorProto.INT4): "int8", int(TensorProto.UINT4): "uint8"}
# Types that are not listed share bytes, too, or are no numbers.
_KINDS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "INT16", "INT32", "INT64")
_SIZES = {
    number: helper.tensor_dtype_to_np_dtype(number).itemsize
    for name, number in TensorProto.DataType.items()
    if name in (*_KINDS, "UINT8", "UINT16", "UINT32", "UINT64", "BOOL")
}
