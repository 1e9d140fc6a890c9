"""Names the ONNX node behind a graph pass that TVM could not run, as far as it can be found."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onnx import ModelProto, NodeProto, shape_inference

from mallorn.core.errors import InvalidModel
from workers.faces.graphs import Shapes
from workers.tvm.onnx_reader import read_model
from workers.tvm.passes import PassFailed
from workers.tvm.templates.compiling import simplify


@contextmanager
def naming_the_node(path: str | Path, input_shapes: Shapes | None) -> Iterator[None]:
    """Where a graph pass fails on the model, raise InvalidModel and name the node that it cannot convert."""
    try:
        yield
    except PassFailed as error:
        shapes = input_shapes or {}
        model = simplify(read_model(path), shapes)
        _bind(model, shapes)
        node = unsized_node(model)
        if node is None:
            raise InvalidModel(f"TVM cannot convert this model: {error.message}") from error
        name = f" (node {node.name!r})" if node.name else ""
        raise InvalidModel(
            f"TVM cannot convert the operator {node.op_type}{name}: the size of its output is known only "
            f"when the model runs ({error.message})",
            hint="export the model with fixed sizes, so that this one is a constant",
        ) from error


def unsized_node(model: ModelProto) -> NodeProto | None:
    """The first node with an output whose shape the model does not fix."""
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    sized = {
        value.name
        for value in (*inferred.value_info, *inferred.output)
        if value.type.tensor_type.HasField("shape")
        and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    }
    return next((node for node in inferred.node if not sized.issuperset(filter(None, node.output))), None)


def _bind(model: ModelProto, shapes: Shapes) -> None:
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
