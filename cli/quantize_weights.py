"""Weights of few bits with a scale for each block, as onnxruntime's MatMulNBits takes them."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from cli.quantize_samples_and_error import Quantised, errors_of, read_network, read_samples
from mallorn.core.errors import InvalidModel

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
