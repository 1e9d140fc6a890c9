"""Compute networks of 16-bit floats in float32 on CPUs; inputs and outputs keep their type.

CPUs are slow at adding float16 numbers or cannot, and such sums lose precision; onnxruntime
computes in float32, too. Weights are widened when TVM reads them.
"""

from collections.abc import Iterable
from typing import Any

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from graphc.onnx import read_with_weights_on_disk

NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPES = ("to", "dtype", "output_dtype")  # attributes that hold a data type


def array(tensor: TensorProto) -> Any:
    """Return a tensor's elements, 16-bit floats as float32."""
    numbers = read_with_weights_on_disk.array(tensor)
    return numbers.astype("float32") if tensor.data_type in NARROW else numbers


def widened(model: ModelProto) -> ModelProto:
    """Return the model with 16-bit floats only at its ends, or itself if it has branches."""
    kinds = {attribute.type for node in model.graph.node for attribute in node.attribute}
    if not _narrow(model) or AttributeProto.GRAPH in kinds:
        return model
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    del graph.node[:], graph.value_info[:]
    constants = {tensor.name for tensor in graph.initializer}  # old files list them as inputs, too
    ends = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    wide = {name: f"{name}/wide" for name, kind in ends.items() if kind in NARROW and name not in constants}
    inputs = [value.name for value in graph.input if value.name in wide]
    graph.node.extend(_cast(name, wide[name], TensorProto.FLOAT) for name in inputs)
    graph.node.extend(_renamed(node, wide) for node in model.graph.node)
    outputs = [value.name for value in graph.output if value.name in wide and value.name not in inputs]
    graph.node.extend(_cast(wide[name], name, ends[name]) for name in outputs)
    return result


def _narrow(model: ModelProto) -> bool:
    graph = model.graph
    typed = (value.type.tensor_type.elem_type for value in (*graph.input, *graph.output))
    kinds = (tensor.data_type for tensor in graph.initializer)
    return not set(NARROW).isdisjoint((*typed, *kinds, *_named(graph.node)))


def _named(nodes: Iterable[NodeProto]) -> Iterable[int]:
    """Yield the data types in the nodes' attributes."""
    for node in nodes:
        yield from (each.i for each in node.attribute if each.name in _TYPES)
        yield from (each.t.data_type for each in node.attribute if each.type == AttributeProto.TENSOR)


def _cast(name: str, result: str, kind: int) -> NodeProto:
    return helper.make_node("Cast", [name], [result], to=kind)


def _renamed(node: NodeProto, wide: dict[str, str]) -> NodeProto:
    """Copy the node with wide inputs, outputs and types."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [wide.get(name, name) for name in node.input]
    copy.output[:] = [wide.get(name, name) for name in node.output]
    for each in copy.attribute:
        if each.name in _TYPES and each.i in NARROW:
            each.i = TensorProto.FLOAT
    return copy
