"""A user's model and samples for `mallorn quantize`, and what its numbers lose on them."""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray

from graphc.export.onnxruntime_answers import session
from mallorn.core.errors import InvalidModel, InvalidRequest

HINT: Final = "numpy.savez('samples.npz', INPUT=array)   (by the inputs' names, samples along the first axis)"
QUANTISED: Final = ("QuantizeLinear", "QLinear", "NBits")
Sample = dict[str, NDArray[Any]]  # by the name of an input


@dataclass(frozen=True)
class Error:
    """Of one output against float32, over its largest value."""

    mean: float
    largest: float


@dataclass(frozen=True)
class Quantised:
    """What was written."""

    samples: int
    bytes: int
    float_bytes: int
    errors: dict[str, Error]


def read_network(model: Path) -> Any:
    """Raises InvalidModel for what is no ONNX file, or one of integers."""
    try:
        network = onnx.load(str(model))
    except (DecodeError, OSError, onnx.checker.ValidationError) as error:
        raise InvalidModel(f"{model} is no ONNX model: {error}", hint="give an .onnx file") from None
    if any(word in node.op_type for node in network.graph.node for word in QUANTISED):
        raise InvalidModel(f"{model} is quantised already", hint=f"mallorn tune {model}")
    return network


def read_samples(network: Any, data: Path) -> Iterator[Sample]:
    """One set of inputs at a time."""
    weights = {tensor.name for tensor in network.graph.initializer}
    inputs = [value for value in network.graph.input if value.name not in weights]
    try:
        with np.load(data, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError):
        raise InvalidRequest(f"{data} is no .npz file of arrays", hint=HINT) from None
    names = [value.name for value in inputs]
    if set(names) != set(arrays):
        wanted, given = ", ".join(names), ", ".join(arrays) or "nothing"
        raise InvalidRequest(f"{data} has {given}; the model takes {wanted}", hint=HINT)
    cut = {value.name: _cut(value, arrays[value.name]) for value in inputs}
    counts = {len(pieces) for pieces in cut.values()}
    if len(counts) != 1 or not max(counts):
        told = ", ".join(f"{len(pieces)} of {name}" for name, pieces in cut.items())
        raise InvalidRequest(
            f"{data} has samples {told}; it needs as many of each, and one at least", hint=HINT
        )
    for at in range(counts.pop()):
        yield {name: pieces[at] for name, pieces in cut.items()}


def _cut(value: Any, array: Any) -> list[Any]:
    """An array as inputs of the model: each along the first axis, or as many at once as the model takes."""
    kind = value.type.tensor_type
    sizes = [dim.dim_value for dim in kind.shape.dim]  # 0: free
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if array.ndim == len(sizes) and sizes:
        batch = sizes[0] or 1
        array = array[: len(array) // batch * batch].reshape(-1, batch, *array.shape[1:])
    fits = (size in (0, length) for length, size in zip(array.shape[1:], sizes, strict=True))
    if array.ndim != len(sizes) + 1 or not all(fits):
        shape = [size or "?" for size in sizes]
        raise InvalidRequest(
            f"samples of {value.name!r} are of shape {list(array.shape)}; the model takes {shape}", hint=HINT
        )
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise InvalidRequest(
            f"samples of {value.name!r} are {array.dtype}; the model takes {dtype}", hint=HINT
        )
    return list(array.astype(dtype))


def errors_of(model: Path, whole: Path, samples: Sequence[Sample]) -> dict[str, Error]:
    """By output, over the samples, in onnxruntime."""
    sessions = [session(str(file)) for file in (model, whole)]
    outputs = [value.name for value in sessions[0].get_outputs()]
    found: dict[str, list[Error]] = {name: [] for name in outputs}
    for sample in samples:
        real, quantised = (each.run(outputs, sample) for each in sessions)
        for name, expected, ours in zip(outputs, real, quantised, strict=True):
            apart = np.abs(np.asarray(ours, "float64") - expected)
            most = max(float(np.abs(expected).max(initial=0.0)), 1e-30)
            found[name].append(Error(float(apart.mean()) / most, float(apart.max(initial=0.0)) / most))
    return {
        name: Error(float(np.mean([e.mean for e in errors])), max(e.largest for e in errors))
        for name, errors in found.items()
    }
