"""Writes out a file's own functions, and those operators that TVM lacks and ONNX itself defines by others."""

from collections.abc import Container, Iterator, Mapping
from typing import Any

from onnx import (
    AttributeProto,
    FunctionProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    defs,
    helper,
    inliner,
    shape_inference,
)

# TVM's importer asks for a name alone, and converts com.microsoft's operator of that name.
_NAMESAKES = frozenset(("Attention",))
# It gives nonsense for their further results.
_ONE_RESULT = frozenset(("LayerNormalization",))
# What an operator becomes may depend on its inputs' types, so every node has a function of its own here.
_DOMAIN = "mallorn.expanded"
# ONNX's own, by both of its names.
DOMAINS = ("", "ai.onnx")


def inline(model: ModelProto) -> ModelProto:
    """The model without functions of its own."""
    return inliner.inline_local_functions(model, convert_version=True) if model.functions else model


def expand(model: ModelProto, known: Container[str]) -> ModelProto:
    """The model with the standard operators that are not known in terms of others, where ONNX says how."""
    if not any(_is_strange(node, known) for node in model.graph.node):
        return model
    result = ModelProto()
    result.CopyFrom(model)
    result.functions.extend(_functions(result, known))
    if not result.functions:
        return model
    result.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    written = inliner.inline_local_functions(result)
    del written.opset_import[[entry.domain for entry in written.opset_import].index(_DOMAIN)]
    return written


def opset_of(model: ModelProto) -> int:
    """The version of ONNX's operators."""
    return max((entry.version for entry in model.opset_import if entry.domain in DOMAINS), default=1)


def _is_strange(node: NodeProto, known: Container[str]) -> bool:
    several = len([name for name in node.output if name]) > 1
    taken = node.op_type in known and node.op_type not in _NAMESAKES
    return not node.domain and not (taken and not (several and node.op_type in _ONE_RESULT))


def _functions(model: ModelProto, known: Container[str]) -> Iterator[FunctionProto]:
    """A function for each strange node that ONNX defines, which calls it from now on."""
    opset = opset_of(model)
    types = types_of(model)
    for at, node in enumerate(model.graph.node):
        function = _definition(node, opset, types) if _is_strange(node, known) else None
        if function is not None:
            function.domain, function.name = _DOMAIN, f"{node.op_type}_{at}"
            del function.opset_import[:]  # its body holds for the model's own, and others are not written out
            function.opset_import.append(helper.make_opsetid("", opset))
            node.attribute.extend(_defaults(node, opset))
            node.domain, node.op_type = _DOMAIN, function.name
            yield function


def _definition(node: NodeProto, opset: int, types: Mapping[str, TypeProto]) -> FunctionProto | None:
    if not defs.has(node.op_type, opset, ""):
        return None
    schema: Any = defs.get_schema(node.op_type, opset, "")
    if schema.has_context_dependent_function:
        given = [types.get(name, TypeProto()).SerializeToString() for name in node.input]
        since = max(at for at in schema.context_dependent_function_opset_versions if at <= opset)
        written = schema.get_context_dependent_function_with_opset_version(
            since, node.SerializeToString(), given
        )
    elif schema.has_function:
        since = max(at for at in schema.function_opset_versions if at <= opset)
        written = schema.get_function_with_opset_version(since)
    else:
        return None
    function: FunctionProto = FunctionProto.FromString(written)
    _ask_each(function)
    return function


def _ask_each(function: FunctionProto) -> None:
    """Whether a row's largest number is -inf becomes whether all are: TVM's largest is always finite."""
    largest = {node.output[0]: node for node in function.node if node.op_type == "ReduceMax"}
    body: list[NodeProto] = []
    for node in function.node:
        of = largest.get(node.input[0]) if node.op_type == "Equal" else None
        body.extend([node] if of is None else _each(node, of))
    del function.node[:]
    function.node.extend(body)


def _each(equal: NodeProto, largest: NodeProto) -> Iterator[NodeProto]:
    (result,) = equal.output
    yield helper.make_node("Equal", [largest.input[0], equal.input[1]], [f"{result}_each"])
    yield helper.make_node("Cast", [f"{result}_each"], [f"{result}_counted"], to=TensorProto.INT32)
    least = helper.make_node("ReduceMin", [f"{result}_counted", *largest.input[1:]], [f"{result}_least"])
    least.attribute.extend(largest.attribute)
    yield least
    yield helper.make_node("Cast", [f"{result}_least"], [result], to=TensorProto.BOOL)


def _defaults(node: NodeProto, opset: int) -> Iterator[AttributeProto]:
    """What a function's body asks for, and the node leaves out."""
    told = {attribute.name for attribute in node.attribute}
    for name, known in defs.get_schema(node.op_type, opset, "").attributes.items():
        if name not in told and known.default_value.type:
            yield known.default_value


def types_of(model: ModelProto) -> Mapping[str, TypeProto]:
    """Of all values of a model, by name, as far as they follow from its inputs."""
    graph = shape_inference.infer_shapes(model).graph
    found = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    constants = {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        for tensor in graph.initializer
    }
    return found | constants
