"""onnxruntime's quantiser, with a user's samples: what is quantised, and what that costs in accuracy."""

import logging
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from mallorn.core.errors import InvalidModel, InvalidRequest

OLDEST_OPSET: Final = 13  # scales of each channel
PRODUCTS: Final = ("MatMul", "Gemm")
HINT: Final = "numpy.savez('samples.npz', INPUT=array)   (by the inputs' names, samples along the first axis)"
Sample = dict[str, Any]  # by the name of an input


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

    def told(self) -> dict[str, Any]:
        return asdict(self)


def quantised(model: Path, data: Path, output: Path) -> Quantised:
    """Write the quantised model. Raises InvalidModel or InvalidRequest."""
    network = _read(model)
    samples = list(_samples(network, data))
    with TemporaryDirectory(prefix="mallorn-quantize-") as folder:
        real, whole = Path(folder, "real.onnx"), Path(folder, "quantised.onnx")
        try:
            quant_pre_process(str(model), str(real), skip_symbolic_shape=True)
            _quantise(real, whole, samples)
            errors = _errors(model, whole, samples)
        except InvalidModel:
            raise
        except Exception as error:  # onnxruntime raises what it likes
            raise InvalidModel(
                f"onnxruntime cannot quantise {model}: {str(error).strip().splitlines()[0][:300]}",
                hint="check-model MODEL   (it comes with the package onnx)",
            ) from error
        shutil.copyfile(whole, output)
    return Quantised(len(samples), output.stat().st_size, model.stat().st_size, errors)


def _read(model: Path) -> Any:
    try:
        network = onnx.load(str(model))
    except (DecodeError, OSError, onnx.checker.ValidationError) as error:
        raise InvalidModel(f"{model} is no ONNX model: {error}", hint="give an .onnx file") from None
    opset = max(
        (entry.version for entry in network.opset_import if entry.domain in ("", "ai.onnx")), default=0
    )
    if opset < OLDEST_OPSET:
        raise InvalidModel(
            f"{model} is of opset {opset}; scales of each channel came with {OLDEST_OPSET}",
            hint="export it as a newer one, e.g. torch.onnx.export(..., opset_version=17)",
        )
    if any("QuantizeLinear" in node.op_type or "QLinear" in node.op_type for node in network.graph.node):
        raise InvalidModel(f"{model} is quantised already", hint=f"mallorn tune {model}")
    return network


def _samples(network: Any, data: Path) -> Iterator[Sample]:
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
    if array.ndim != len(sizes) + 1 or not _fits(array.shape[1:], sizes):
        shape = [size or "?" for size in sizes]
        raise InvalidRequest(
            f"samples of {value.name!r} are of shape {list(array.shape)}; the model takes {shape}", hint=HINT
        )
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise InvalidRequest(
            f"samples of {value.name!r} are {array.dtype}; the model takes {dtype}", hint=HINT
        )
    return list(array.astype(dtype))


def _fits(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    return all(size in (0, length) for length, size in zip(shape, sizes, strict=True))


class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._left = iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._left, None)


def _quantise(real: Path, whole: Path, samples: Sequence[Sample]) -> None:
    """QDQ, bytes without a sign for data and with one for weights, as processors multiply them."""
    nodes = onnx.load(str(real)).graph
    constant = {tensor.name for tensor in nodes.initializer}
    loose = [node.name for node in nodes.node if node.op_type == "MatMul" and node.input[1] not in constant]
    products = sum(node.op_type in PRODUCTS for node in nodes.node) - len(loose)
    convolutions = sum(node.op_type == "Conv" for node in nodes.node)
    if not products + convolutions:
        raise InvalidModel(
            "the model has no convolution and no product with constant weights",
            hint="there is nothing to gain",
        )
    with _without_advice():
        quantization.quantize_static(
            str(real),
            str(whole),
            _Reader(samples),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=None if convolutions > products else ["Conv", *PRODUCTS],
            nodes_to_exclude=loose,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )


@contextmanager
def _without_advice() -> Iterator[None]:
    """onnxruntime's quantiser writes advice for its own users to the root logger itself."""
    root = logging.getLogger()
    root.addFilter(_is_error)
    try:
        yield
    finally:
        root.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _errors(model: Path, whole: Path, samples: Sequence[Sample]) -> dict[str, Error]:
    """By output, over the samples, in onnxruntime."""
    sessions = [
        onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"]) for file in (model, whole)
    ]
    outputs = [value.name for value in sessions[0].get_outputs()]
    found: dict[str, list[Error]] = {name: [] for name in outputs}
    for sample in samples:
        real, quantised = (session.run(outputs, sample) for session in sessions)
        for name, expected, ours in zip(outputs, real, quantised, strict=True):
            apart = np.abs(np.asarray(ours, "float64") - expected)
            most = max(float(np.abs(expected).max(initial=0.0)), 1e-30)
            found[name].append(Error(float(apart.mean()) / most, float(apart.max(initial=0.0)) / most))
    return {
        name: Error(float(np.mean([e.mean for e in errors])), max(e.largest for e in errors))
        for name, errors in found.items()
    }
