"""Names the ONNX node behind a graph pass that TVM could not run, as far as it can be found."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto, shape_inference

from mallorn.core.errors import InvalidModel
from workers.faces.graphs import Shapes
from workers.tvm.passes import PassFailed


@contextmanager
def naming_the_node(path: str | Path, input_shapes: Shapes | None) -> Iterator[None]:
    """Raise InvalidModel, naming what cannot be converted, where a graph pass gives up on the model."""
    try:
        yield
    except PassFailed as error:
        model = onnx.load(path)
        _bind(model, input_shapes or {})
        node = unsized_node(model)
        if node is None:
            raise InvalidModel(f"TVM cannot convert this model: {error.message}") from error
        raise InvalidModel(
            f"TVM cannot convert {_called(node)}: the size of its output is known only when the model runs "
            f"({error.message})",
            hint="export the model with fixed sizes, so that this one is a constant",
        ) from error


def unsized_node(model: ModelProto) -> NodeProto | None:
    """The first node with an output whose shape the model does not fix."""
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    sized = {value.name for value in (*inferred.value_info, *inferred.output) if _is_sized(value)}
    return next((node for node in inferred.node if not sized.issuperset(filter(None, node.output))), None)


def _is_sized(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


def _bind(model: ModelProto, shapes: Shapes) -> None:
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dim.dim_value = size


def _called(node: NodeProto) -> str:
    return f"the operator {node.op_type}" + (f" (node {node.name!r})" if node.name else "")
