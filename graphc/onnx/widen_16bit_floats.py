"""Compute networks of 16-bit floats in float32 on CPUs; inputs and outputs keep their type.

CPUs are slow at adding float16 numbers or cannot, and such sums lose precision; onnxruntime
computes in float32, too. Weights are widened when TVM reads them.
"""

from typing import Any

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from mallorn.graphc.onnx import read_with_weights_on_disk

NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPES = ("to", "dtype", "output_dtype")  # attributes that hold a data type


def read_as_float32(tensor: TensorProto) -> Any:
    numbers = read_with_weights_on_disk.read_tensor(tensor)
    return numbers.astype("float32") if tensor.data_type in NARROW else numbers


def widen(model: ModelProto) -> ModelProto:
    """Return the model with 16-bit floats at its ends; unchanged if it has branches."""
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    kinds = {tensor.data_type for tensor in model.graph.initializer}
    kinds |= {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    kinds |= {attribute.i for attribute in attributes if attribute.name in _TYPES}
    kinds |= {attribute.t.data_type for attribute in attributes if attribute.type == AttributeProto.TENSOR}
    has_branches = any(attribute.type == AttributeProto.GRAPH for attribute in attributes)
    if kinds.isdisjoint(NARROW) or has_branches:
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
    for node in model.graph.node:  # with wide inputs, outputs and types
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [wide.get(name, name) for name in node.input]
        copy.output[:] = [wide.get(name, name) for name in node.output]
        for attribute in copy.attribute:
            if attribute.name in _TYPES and attribute.i in NARROW:
                attribute.i = TensorProto.FLOAT
    outputs = [value.name for value in graph.output if value.name in wide and value.name not in inputs]
    graph.node.extend(_cast(wide[name], name, ends[name]) for name in outputs)
    return result


def _cast(name: str, result: str, kind: int) -> NodeProto:
    return helper.make_node("Cast", [name], [result], to=kind)
