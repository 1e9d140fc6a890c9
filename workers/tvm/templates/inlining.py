"""Writes out a file's own functions, and those operators that TVM lacks and ONNX itself defines by others."""

from collections.abc import Container

from onnx import ModelProto, inliner


def inline(model: ModelProto) -> ModelProto:
    """The model without functions of its own."""
    return inliner.inline_local_functions(model, convert_version=True) if model.functions else model


def expand(model: ModelProto, known: Container[str]) -> ModelProto:
    """The model with the standard operators that are not known in terms of others, where ONNX says how."""
    unknown = {
        ("", node.op_type) for node in model.graph.node if not node.domain and node.op_type not in known
    }
    if not unknown:
        return model
    return inliner.inline_selected_functions(model, sorted(unknown), inline_schema_functions=True)
