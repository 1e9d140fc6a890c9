"""ONNX bytes, parsed and checked before TVM sees them."""

from collections.abc import Iterator, Sequence, Set
from typing import Any, Final

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from mallorn.core.errors import InvalidModel
from mallorn.core.formats import foreign_format
from workers.tvm.templates import unrolling

CHECK: Final = "check-model MODEL   (it comes with the package onnx)"
LIST: Final = "(what is imported: docs/models.md)"
DOMAINS: Final = ("", "ai.onnx", "com.microsoft")
OLDER: Final = "export it as an older one, e.g. torch.onnx.export(..., opset_version=17)"


def read_model(data: bytes) -> ModelProto:
    """Parse and check ONNX bytes: complete, valid, self-contained."""
    if not data:
        raise InvalidModel("the model file is empty", hint="export it again; zero bytes were received")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise _unreadable(data) from None
    if not model.graph.node or not model.ir_version:
        raise _unreadable(data)
    try:
        _check(model)
    except (TypeError, UnicodeDecodeError):  # protobuf hands out names that are no text as bytes
        raise _unreadable(data) from None
    return model


def graph_inputs(graph: GraphProto) -> list[Any]:
    """What the caller feeds: old exporters list weights among the inputs too."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def _check(model: ModelProto) -> None:
    _refuse_external_data(model)
    _refuse_foreign(model)
    _refuse_newer(model)
    if not model.graph.output:
        raise InvalidModel("the model has no outputs", hint="export it again, with what it shall compute")
    try:
        onnx.checker.check_model(_complete(model))
    except onnx.checker.ValidationError as error:
        raise InvalidModel(f"not a valid ONNX model: {first_line(error)}", hint=CHECK) from None


def _refuse_newer(model: ModelProto) -> None:
    opsets = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    versions = {
        "IR version": (model.ir_version, onnx.IR_VERSION),
        "opset": (max(opsets, default=0), onnx.defs.onnx_opset_version()),
    }
    for what, (found, known) in versions.items():
        if found > known:
            raise InvalidModel(
                f"the model is of ONNX {what} {found}, and {known} is the newest known", hint=OLDER
            )


def refuse_text(graph: GraphProto) -> None:
    """Raise InvalidModel for inputs that are no numbers."""
    for value in graph_inputs(graph):
        if value.type.tensor_type.elem_type == TensorProto.STRING:
            raise InvalidModel(
                f"input {value.name!r} takes text, and TVM computes with numbers",
                hint="export the part of the model that follows its text processing",
            )


def _complete(model: ModelProto) -> ModelProto:
    """The model with types for outputs whose types the exporter left out: the import finds them."""
    result = ModelProto()
    result.CopyFrom(model)
    for value in result.graph.output:
        kind = value.type.tensor_type
        kind.elem_type = kind.elem_type or TensorProto.FLOAT
        kind.shape.SetInParent()
    return result


def _unreadable(data: bytes) -> InvalidModel:
    found = foreign_format(data)
    if found:
        return InvalidModel(f"this is {found.name}, not ONNX", hint=found.hint)
    return InvalidModel(
        "these bytes are not an ONNX model, or the file was cut short", hint="copy or export it again"
    )


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for attribute in (a for node in graph.node for a in node.attribute):
        for inner in [*attribute.graphs, *([attribute.g] if attribute.type == AttributeProto.GRAPH else [])]:
            yield from _graphs(inner)


def _nodes(model: ModelProto) -> Iterator[NodeProto]:
    for graph in _graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    for graph in _graphs(model.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for attribute in (a for node in _nodes(model) for a in node.attribute):
        yield from attribute.tensors
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t


def _refuse_external_data(model: ModelProto) -> None:
    for tensor in _tensors(model):
        if tensor.external_data or tensor.data_location == TensorProto.EXTERNAL:
            raise InvalidModel(
                f"tensor {tensor.name!r} keeps its data in another file",
                hint="mallorn tune MODEL   (or submit: both put in what lies in files beside the model)",
            )


def _refuse_foreign(model: ModelProto) -> None:
    own = {(function.domain, function.name) for function in model.functions}
    strange = [n for n in _nodes(model) if n.domain not in DOMAINS and (n.domain, n.op_type) not in own]
    if strange:
        raise _unknown(sorted({f"{node.domain}.{node.op_type}" for node in strange}))


def refuse_unknown_operators(model: ModelProto, known: Set[str]) -> None:
    """Raise InvalidModel for a simplified model with operators that are not converted, and name them."""
    unknown = sorted({node.op_type for node in _nodes(model)}.difference(known))
    if unknown:
        raise _unknown(unknown)


def _unknown(names: Sequence[str]) -> InvalidModel:
    running = [name for name in names if name in unrolling.KINDS]
    hint = (
        f"export the model with steps that are counted beforehand, at most {unrolling.UNROLLED:,} nodes in "
        f"all: how long {running[0]} runs here is known only when the model runs"
        if running
        else "export with standard ONNX operators, e.g. torch.onnx.export(..., opset_version=17)"
    )
    return InvalidModel(f"TVM cannot import these operators: {', '.join(names)}", hint=f"{hint}   {LIST}")


def first_line(error: BaseException) -> str:
    """An error in one line, for a message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
