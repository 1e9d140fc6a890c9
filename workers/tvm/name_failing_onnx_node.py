"""Report TVM's failures on a model in terms of ONNX: the node, and why it failed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnx import ModelProto, NodeProto, shape_inference
from tvm.relax.frontend.onnx import onnx_frontend

from graphc.export.compile_network import simplify
from mallorn.core.errors import InvalidModel
from workers.interfaces.model_compiler import Shapes
from workers.tvm.check_onnx_model import LIST, read_model
from workers.tvm.run_recipe_passes import PassFailed


@contextmanager
def naming_the_node(path: str | Path, input_shapes: Shapes | None) -> Iterator[None]:
    """Turn PassFailed into InvalidModel, naming the node of unknown size if there is one."""
    try:
        yield
    except PassFailed as error:
        shapes = input_shapes or {}
        model = simplify(read_model(path), shapes)
        for value in model.graph.input:
            for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
                dim.dim_value = size
        node = unsized_node(model)
        if node is None or "ShapeExpr" not in error.message:
            raise InvalidModel(f"TVM cannot convert this model: {error.message}", hint=LIST) from error
        name = f" (node {node.name!r})" if node.name else ""
        raise InvalidModel(
            f"TVM cannot convert the operator {node.op_type}{name}: the size of its output is known only "
            f"when the model runs ({error.message})",
            hint=f"export the model with fixed sizes, so that this one is a constant   {LIST}",
        ) from error


@contextmanager
def naming_nodes() -> Iterator[None]:
    """Add a note to errors of the ONNX importer that names the failing node."""
    importer = onnx_frontend.ONNXGraphImporter
    original = importer._convert_operator

    def convert(self: Any, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        try:
            return original(self, op_name, inputs, attrs, opset)
        except Exception as error:
            name = attrs["tvm_custom"]["name"]
            error.add_note(f"{op_name} (node {name!r})" if name else op_name)
            raise

    importer._convert_operator = convert
    try:
        yield
    finally:
        importer._convert_operator = original


def node_of(error: BaseException) -> str:
    """Return the node that an error's note names; empty if it has no note."""
    return next(iter(getattr(error, "__notes__", ())), "")


def unsized_node(model: ModelProto) -> NodeProto | None:
    """Return the first node with an output whose shape the model does not fix, or None."""
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    sized = {
        value.name
        for value in (*inferred.value_info, *inferred.output)
        if value.type.tensor_type.HasField("shape")
        and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    }
    return next((node for node in inferred.node if not sized.issuperset(filter(None, node.output))), None)
