"""Quantisation for examples/quantize.py: of all operators or of weights, and its error."""

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

from mallorn.core.errors import InvalidModel, InvalidRequest
from mallorn.graphc.export.compare_with_onnxruntime import make_session

HINT: Final = "numpy.savez('samples.npz', INPUT=array)   (by the inputs' names, samples along the first axis)"
QUANTISED: Final = ("QuantizeLinear", "QLinear", "NBits")
Sample = dict[str, NDArray[Any]]  # by the name of an input


@dataclass(frozen=True)
class Error:
    """Error of an output against the float32 model, relative to the output's peak."""

    mean: float
    largest: float


@dataclass(frozen=True)
class Quantised:
    """Sizes and errors of a quantised model, and the number of samples used."""

    samples: int
    bytes: int
    float_bytes: int
    errors: dict[str, Error]


def read_network(model: Path) -> Any:
    """Read an ONNX file. Raises InvalidModel if it is invalid or quantised already."""
    try:
        network = onnx.load(str(model))
    except (DecodeError, OSError, onnx.checker.ValidationError) as error:
        raise InvalidModel(f"{model} is not an ONNX model: {error}", hint="give an .onnx file") from None
    if any(word in node.op_type for node in network.graph.node for word in QUANTISED):
        raise InvalidModel(f"{model} is quantised already", hint=f"mallorn tune {model}")
    return network


def read_samples(network: Any, data: Path) -> Iterator[Sample]:
    """Yield the inputs of each sample in a file. Raises InvalidRequest if one is wrong."""
    weights = {tensor.name for tensor in network.graph.initializer}
    inputs = [value for value in network.graph.input if value.name not in weights]
    try:
        with np.load(data, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError):
        raise InvalidRequest(f"{data} is not an .npz file of arrays", hint=HINT) from None
    names = [value.name for value in inputs]
    if set(names) != set(arrays):
        expected_names, actual = ", ".join(names), ", ".join(arrays) or "nothing"
        raise InvalidRequest(f"{data} has {actual}; the model's inputs are {expected_names}", hint=HINT)
    cut = {value.name: _split_into_batches(value, arrays[value.name]) for value in inputs}
    counts = {len(pieces) for pieces in cut.values()}
    if len(counts) != 1 or not max(counts):
        counts_text = ", ".join(f"{len(pieces)} of {name}" for name, pieces in cut.items())
        message = f"{data} has samples {counts_text}; every input needs the same number, at least one"
        raise InvalidRequest(message, hint=HINT)
    for i in range(counts.pop()):
        yield {name: pieces[i] for name, pieces in cut.items()}


def _split_into_batches(value: Any, array: Any) -> list[Any]:
    """Split an array of samples into inputs of the model's batch size, 1 if that is free."""
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
        message = f"samples of {value.name!r} are {array.dtype}; the model takes {dtype}"
        raise InvalidRequest(message, hint=HINT)
    return list(array.astype(dtype))


def errors_of(model: Path, candidate: Path, samples: Sequence[Sample]) -> dict[str, Error]:
    """Return, by output, the second model's error against the first, in onnxruntime."""
    sessions = [make_session(str(file)) for file in (model, candidate)]
    outputs = [value.name for value in sessions[0].get_outputs()]
    results: dict[str, list[Error]] = {name: [] for name in outputs}
    for sample in samples:
        real, quantised = (engine.run(outputs, sample) for engine in sessions)
        for name, reference, actual in zip(outputs, real, quantised, strict=True):
            gaps = np.abs(np.asarray(actual, "float64") - reference)
            peak = max(float(np.abs(reference).max(initial=0.0)), 1e-30)
            results[name].append(Error(float(gaps.mean()) / peak, float(gaps.max(initial=0.0)) / peak))
    return {
        name: Error(float(np.mean([e.mean for e in errors])), max(e.largest for e in errors))
        for name, errors in results.items()
    }


OLDEST_OPSET: Final = 13  # the first with a scale per channel
PRODUCTS: Final = ("MatMul", "Gemm")


def write_quantised_model(model: Path, data: Path, output: Path) -> Quantised:
    """Write the model with 8-bit operators. Raises InvalidModel, or InvalidRequest."""
    network = read_network(model)
    versions = [entry.version for entry in network.opset_import if entry.domain in ("", "ai.onnx")]
    opset = max(versions, default=0)
    if opset < OLDEST_OPSET:
        raise InvalidModel(
            f"{model} has opset {opset}; scales per channel need {OLDEST_OPSET} or newer",
            hint="export with a newer opset, e.g. torch.onnx.export(..., opset_version=17)",
        )
    samples = list(read_samples(network, data))
    with TemporaryDirectory(prefix="mallorn-quantize-") as folder:
        real, quantised_file = Path(folder, "real.onnx"), Path(folder, "quantised.onnx")
        try:
            quant_pre_process(str(model), str(real), skip_symbolic_shape=True)
            _quantise(real, quantised_file, samples)
            errors = errors_of(model, quantised_file, samples)
        except InvalidModel:
            raise
        except Exception as error:  # onnxruntime raises many kinds of exceptions
            raise InvalidModel(
                f"onnxruntime cannot quantise {model}: {str(error).strip().splitlines()[0][:300]}",
                hint="check-model MODEL   (it comes with the package onnx)",
            ) from error
        shutil.copyfile(quantised_file, output)
    return Quantised(len(samples), output.stat().st_size, model.stat().st_size, errors)


class _SampleReader(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._left = iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._left, None)


def _quantise(real: Path, quantised_file: Path, samples: Sequence[Sample]) -> None:
    """Write an ONNX model in QDQ form, with unsigned data and signed weights as for CPUs."""
    nodes = onnx.load(str(real)).graph
    constant = {tensor.name for tensor in nodes.initializer}
    loose = [node.name for node in nodes.node if node.op_type == "MatMul" and node.input[1] not in constant]
    products = sum(node.op_type in PRODUCTS for node in nodes.node) - len(loose)
    convolutions = sum(node.op_type == "Conv" for node in nodes.node)
    if not products + convolutions:
        message = "the model has neither a convolution nor a product with constant weights"
        raise InvalidModel(message, hint="tune the model as it is")
    # onnxruntime's quantiser logs advice for its own users on the root logger.
    root = logging.getLogger()
    root.addFilter(_is_error)
    try:
        quantization.quantize_static(
            str(real),
            str(quantised_file),
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
# Protobuf files have a size limit: larger weights go into a separate file.
MOST_BYTES: Final = 1 << 30


def write_narrow_weights(model: Path, data: Path | None, output: Path, bits: int, group: int) -> Quantised:
    """Write the model with 4- or 8-bit weights. Raises InvalidModel if it gains nothing."""
    network = read_network(model)
    samples = [] if data is None else list(read_samples(network, data))
    old_bytes = _weight_bytes(network)
    if not _narrow(network, bits, group):
        message = f"the model has no product with constant weights of {group} rows or more"
        raise InvalidModel(message, hint="tune the model as it is")
    new_bytes = _weight_bytes(network)
    onnx.save(network, output, save_as_external_data=new_bytes > MOST_BYTES, location=f"{output.name}.data")
    errors = errors_of(model, output, samples) if samples else {}
    return Quantised(len(samples), new_bytes, old_bytes, errors)


def _weight_bytes(network: Any) -> int:
    """Return the bytes of the weights; the network itself may be too large for ByteSize."""
    return sum(tensor.ByteSize() for tensor in network.graph.initializer)


def _narrow(network: Any, bits: int, group: int) -> int:
    graph, count = network.graph, 0
    constants = {tensor.name: tensor for tensor in graph.initializer}
    transposes = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "Transpose" and node.input[0] in constants
        if len(constants[node.input[0]].dims) == 2
    }
    for node in graph.node:
        weights = _constant_weights(node, constants, transposes)
        if weights is not None and len(weights) >= group:
            inputs, outputs = weights.shape
            numbers, scales = round_weights(weights, bits, group)
            if bits == NIBBLE:
                numbers = numbers[..., ::2] | (numbers[..., 1::2] << NIBBLE)
            tensors = [
                numpy_helper.from_array(array, f"{node.output[0]}/{suffix}")
                for suffix, array in (("bits", numbers), ("scales", scales.astype(weights.dtype)))
            ]
            bias = list(node.input[2:])
            names = [tensor.name for tensor in tensors]
            node.input[:] = [node.input[0], *names, *(["", "", *bias] if bias else [])]
            del node.attribute[:]
            node.op_type, node.domain = "MatMulNBits", DOMAIN
            attributes = {"K": inputs, "N": outputs, "bits": bits, "block_size": group}
            node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
            graph.initializer.extend(tensors)
            count += 1
    reads = _count_reads(graph)
    for name, node in transposes.items():
        if not reads[name]:
            graph.node.remove(node)
    reads = _count_reads(graph)
    unread = {tensor.name for tensor in graph.initializer if not reads[tensor.name]}
    for values in (graph.initializer, graph.input):  # old files list constants among the inputs
        remaining = [value for value in values if value.name not in unread]
        del values[:]
        values.extend(remaining)
    if count and all(entry.domain != DOMAIN for entry in network.opset_import):
        network.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return count


def _constant_weights(
    node: NodeProto, constants: Mapping[str, TensorProto], transposes: Mapping[str, NodeProto]
) -> Any | None:
    """Return a product's constant matrix [inputs, outputs]; None for any other node."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.domain or node.op_type not in ("MatMul", "Gemm"):
        return None
    if attributes.get("transA") or attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
        return None
    name, is_transposed = node.input[1], bool(attributes.get("transB"))
    if name in transposes:
        name, is_transposed = transposes[name].input[0], not is_transposed
    tensor = constants.get(name)
    if tensor is None or len(tensor.dims) != 2 or tensor.data_type not in _REAL:
        return None
    if len(node.input) > 2 and len(getattr(constants.get(node.input[2]), "dims", ())) != 1:
        return None  # Gemm adds more than a bias vector
    array = numpy_helper.to_array(tensor)
    return array.T if is_transposed else array


_REAL: Final = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)


def round_weights(weights: Any, bits: int, group: int) -> tuple[Any, Any]:
    """Return the weights as unsigned integers [outputs, blocks, group], and scales.

    A block's value of largest magnitude becomes the smallest integer, because there is one
    more negative value than positive ones.
    """
    half = 1 << (bits - 1)
    matrix = np.pad(weights.T.astype("float32"), [(0, 0), (0, -len(weights) % group)])
    blocks = matrix.reshape(len(matrix), -1, group)
    places = np.abs(blocks).argmax(-1)[..., None]
    scales = np.take_along_axis(blocks, places, -1) / -half
    steps = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales != 0)
    numbers = np.clip(np.rint(steps), -half, half - 1) + half
    return numbers.astype("uint8"), scales[..., 0]


def _count_reads(graph: Any) -> Counter[str]:
    """Count how often each value is read, also in the bodies of If and Loop nodes."""
    reads = Counter(value.name for value in graph.output)
    for node in graph.node:
        reads.update(node.input)
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                reads += _count_reads(body)
    return reads
