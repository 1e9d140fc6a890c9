"""Quantise a model for `mallorn quantize`, by samples or its weights alone, and measure its error."""

import logging
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

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


OLDEST_OPSET: Final = 13  # scales of each channel
PRODUCTS: Final = ("MatMul", "Gemm")


def quantised(model: Path, data: Path, output: Path) -> Quantised:
    """Write the quantised model. Raises InvalidModel or InvalidRequest."""
    network = read_network(model)
    opset = max(
        (entry.version for entry in network.opset_import if entry.domain in ("", "ai.onnx")), default=0
    )
    if opset < OLDEST_OPSET:
        raise InvalidModel(
            f"{model} is of opset {opset}; scales of each channel came with {OLDEST_OPSET}",
            hint="export it as a newer one, e.g. torch.onnx.export(..., opset_version=17)",
        )
    samples = list(read_samples(network, data))
    with TemporaryDirectory(prefix="mallorn-quantize-") as folder:
        real, whole = Path(folder, "real.onnx"), Path(folder, "quantised.onnx")
        try:
            quant_pre_process(str(model), str(real), skip_symbolic_shape=True)
            _quantise(real, whole, samples)
            errors = errors_of(model, whole, samples)
        except InvalidModel:
            raise
        except Exception as error:  # onnxruntime raises what it likes
            raise InvalidModel(
                f"onnxruntime cannot quantise {model}: {str(error).strip().splitlines()[0][:300]}",
                hint="check-model MODEL   (it comes with the package onnx)",
            ) from error
        shutil.copyfile(whole, output)
    return Quantised(len(samples), output.stat().st_size, model.stat().st_size, errors)


class _SampleReader(quantization.CalibrationDataReader):  # type: ignore[misc]
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
    # onnxruntime's quantiser writes advice for its own users to the root logger itself.
    root = logging.getLogger()
    root.addFilter(_is_error)
    try:
        quantization.quantize_static(
            str(real),
            str(whole),
            _SampleReader(samples),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=None if convolutions > products else ["Conv", *PRODUCTS],
            nodes_to_exclude=loose,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
    finally:
        root.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


DOMAIN: Final = "com.microsoft"
NIBBLE: Final = 4
# Larger files are no protobuf: weights go into one beside.
MOST_BYTES: Final = 1 << 30


def narrowed(model: Path, data: Path | None, output: Path, bits: int, group: int) -> Quantised:
    """Write the model with narrow weights. Raises InvalidModel or InvalidRequest."""
    network = read_network(model)
    samples = [] if data is None else list(read_samples(network, data))
    before = _weight_bytes(network)
    if not _narrow(network, bits, group):
        raise InvalidModel(
            f"the model has no product with constant weights of {group} rows or more",
            hint="there is nothing to gain",
        )
    after = _weight_bytes(network)
    onnx.save(network, output, save_as_external_data=after > MOST_BYTES, location=f"{output.name}.data")
    errors = errors_of(model, output, samples) if samples else {}
    return Quantised(len(samples), after, before, errors)


def _weight_bytes(network: Any) -> int:
    """Of a network that may be too large to be counted as a whole."""
    return sum(tensor.ByteSize() for tensor in network.graph.initializer)


def _narrow(network: Any, bits: int, group: int) -> int:
    """Write products in other words; how many."""
    graph, found = network.graph, 0
    constants = {tensor.name: tensor for tensor in graph.initializer}
    turned = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "Transpose" and node.input[0] in constants
        if len(constants[node.input[0]].dims) == 2
    }
    for node in graph.node:
        weights = _weights(node, constants, turned)
        if weights is not None and len(weights) >= group:
            graph.initializer.extend(_packed(node, weights, bits, group))
            found += 1
    _drop_unread(graph, turned)
    if found and all(entry.domain != DOMAIN for entry in network.opset_import):
        network.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return found


def _weights(
    node: NodeProto, constants: Mapping[str, TensorProto], turned: Mapping[str, NodeProto]
) -> Any | None:
    """The constant matrix [inputs, outputs] that the node multiplies real numbers with."""
    said = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.domain or node.op_type not in ("MatMul", "Gemm"):
        return None
    if said.get("transA") or said.get("alpha", 1.0) != 1.0 or said.get("beta", 1.0) != 1.0:
        return None
    name, is_turned = node.input[1], bool(said.get("transB"))
    if name in turned:
        name, is_turned = turned[name].input[0], not is_turned
    tensor = constants.get(name)
    if tensor is None or len(tensor.dims) != 2 or tensor.data_type not in _REAL:
        return None
    if len(node.input) > 2 and len(getattr(constants.get(node.input[2]), "dims", ())) != 1:
        return None  # what Gemm adds is no row
    array = numpy_helper.to_array(tensor)
    return array.T if is_turned else array


_REAL: Final = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)


def _packed(node: NodeProto, weights: Any, bits: int, group: int) -> list[Any]:
    """Make the node a MatMulNBits; its constants."""
    inputs, outputs = weights.shape
    numbers, scales = rounded(weights, bits, group)
    if bits == NIBBLE:
        numbers = numbers[..., ::2] | (numbers[..., 1::2] << NIBBLE)
    tensors = [
        numpy_helper.from_array(array, f"{node.output[0]}/{what}")
        for what, array in (("bits", numbers), ("scales", scales.astype(weights.dtype)))
    ]
    bias = list(node.input[2:])
    node.input[:] = [node.input[0], *(tensor.name for tensor in tensors), *(["", "", *bias] if bias else [])]
    del node.attribute[:]
    node.op_type, node.domain = "MatMulNBits", DOMAIN
    attributes = {"K": inputs, "N": outputs, "bits": bits, "block_size": group}
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return tensors


def rounded(weights: Any, bits: int, group: int) -> tuple[Any, Any]:
    """Numbers [outputs, blocks, group] around half of their range, and scales [outputs, blocks].

    The largest of a block, which may have either sign, becomes the least number: there is one more of those.
    """
    half = 1 << (bits - 1)
    padded = np.pad(weights.T.astype("float32"), [(0, 0), (0, -len(weights) % group)])
    blocks = padded.reshape(len(padded), -1, group)
    places = np.abs(blocks).argmax(-1)[..., None]
    scales = np.take_along_axis(blocks, places, -1) / -half
    steps = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales != 0)
    numbers = np.clip(np.rint(steps), -half, half - 1) + half
    return numbers.astype("uint8"), scales[..., 0]


def _drop_unread(graph: Any, turned: Mapping[str, NodeProto]) -> None:
    """Real weights that nothing reads any more, and what transposed them."""
    read = _read(graph)
    for name, node in turned.items():
        if not read[name]:
            graph.node.remove(node)
    read = _read(graph)
    unread = {tensor.name for tensor in graph.initializer if not read[tensor.name]}
    for values in (graph.initializer, graph.input):  # old files list constants among the inputs
        kept = [value for value in values if value.name not in unread]
        del values[:]
        values.extend(kept)


def _read(graph: Any) -> Counter[str]:
    """How often each value is read, in bodies of branches and loops, too."""
    found = Counter(value.name for value in graph.output)
    for node in graph.node:
        found.update(node.input)
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                found += _read(body)
    return found
