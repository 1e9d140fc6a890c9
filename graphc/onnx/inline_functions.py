"""Inline a file's functions, and expand operators that TVM lacks as ONNX defines them."""

from collections.abc import Container, Mapping
from typing import Any

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, TypeProto, defs, helper, inliner
from onnx.shape_inference import InferenceError, infer_shapes

# TVM's importer ignores domains, and would convert com.microsoft's operator of this name.
_NAMESAKES = frozenset(("Attention",))
# TVM's importer gives wrong values for their second and later results.
_ONE_RESULT = frozenset(("LayerNormalization",))
# An expansion may depend on its inputs' types, so each node gets a function in this domain.
_DOMAIN = "mallorn.expanded"
# The two names of ONNX's own domain.
DOMAINS = ("", "ai.onnx")


def inline(model: ModelProto) -> ModelProto:
    """Return the model with calls of its own functions replaced by the functions' nodes."""
    return inliner.inline_local_functions(model, convert_version=True) if model.functions else model


def expand_unsupported_operators(model: ModelProto, supported: Container[str]) -> ModelProto:
    """Return the model with unsupported standard operators expanded as in ONNX."""
    if not any(_needs_expansion(node, supported) for node in model.graph.node):
        return model
    result = ModelProto()
    result.CopyFrom(model)
    opset, types = opset_of(model), types_of(model)
    for index, node in enumerate(result.graph.node):
        function = _definition(node, opset, types) if _needs_expansion(node, supported) else None
        if function is None:
            continue
        function.domain, function.name = _DOMAIN, f"{node.op_type}_{index}"
        del function.opset_import[:]  # the body uses the model's opset
        function.opset_import.append(helper.make_opsetid("", opset))
        # Attributes that the node leaves out and the function's body needs.
        names = {attribute.name for attribute in node.attribute}
        for name, attribute in defs.get_schema(node.op_type, opset, "").attributes.items():
            if name not in names and attribute.default_value.type:
                node.attribute.append(attribute.default_value)
        node.domain, node.op_type = _DOMAIN, function.name
        result.functions.append(function)
    if not result.functions:
        return model
    result.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    inlined = inliner.inline_local_functions(result)
    del inlined.opset_import[[entry.domain for entry in inlined.opset_import].index(_DOMAIN)]
    return inlined


def opset_of(model: ModelProto) -> int:
    """Return the version of ONNX's standard operators that the model imports, else 1."""
    return max((entry.version for entry in model.opset_import if entry.domain in DOMAINS), default=1)


def _needs_expansion(node: NodeProto, supported: Container[str]) -> bool:
    several = len([name for name in node.output if name]) > 1
    is_supported = node.op_type in supported and node.op_type not in _NAMESAKES
    return not node.domain and not (is_supported and not (several and node.op_type in _ONE_RESULT))


def _definition(node: NodeProto, opset: int, types: Mapping[str, TypeProto]) -> FunctionProto | None:
    if not defs.has(node.op_type, opset, ""):
        return None
    schema: Any = defs.get_schema(node.op_type, opset, "")
    if schema.has_context_dependent_function:
        input_types = [types.get(name, TypeProto()).SerializeToString() for name in node.input]
        since = max(v for v in schema.context_dependent_function_opset_versions if v <= opset)
        definition = schema.get_context_dependent_function_with_opset_version(
            since, node.SerializeToString(), input_types
        )
    elif schema.has_function:
        since = max(v for v in schema.function_opset_versions if v <= opset)
        definition = schema.get_function_with_opset_version(since)
    else:
        return None
    function: FunctionProto = FunctionProto.FromString(definition)
    # Replace "maximum is -inf" by "all are -inf": TVM's maximum is always finite.
    maxima = {inner.output[0]: inner for inner in function.node if inner.op_type == "ReduceMax"}
    body: list[NodeProto] = []
    for inner in function.node:
        largest = maxima.get(inner.input[0]) if inner.op_type == "Equal" else None
        if largest is None:
            body.append(inner)
            continue
        (result,) = inner.output
        least = helper.make_node("ReduceMin", [f"{result}_counted", *largest.input[1:]], [f"{result}_least"])
        least.attribute.extend(largest.attribute)
        body += [
            helper.make_node("Equal", [largest.input[0], inner.input[1]], [f"{result}_each"]),
            helper.make_node("Cast", [f"{result}_each"], [f"{result}_counted"], to=TensorProto.INT32),
            least,
            helper.make_node("Cast", [f"{result}_least"], [result], to=TensorProto.BOOL),
        ]
    del function.node[:]
    function.node.extend(body)
    return function


def types_of(model: ModelProto) -> Mapping[str, TypeProto]:
    """Return the types of a model's values by name, where shape inference finds them."""
    try:
        graph = infer_shapes(model).graph
    except InferenceError:  # onnxruntime and TVM may accept what ONNX refuses
        graph = model.graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    constants = {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        for tensor in graph.initializer
    }
    return types | constants
