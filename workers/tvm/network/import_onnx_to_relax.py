"""Import an ONNX file as a Relax module, or raise InvalidModel with the cause and a hint."""

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
from onnx import GraphProto, ModelProto, NodeProto, shape_inference
from tvm.relax.frontend.onnx import onnx_frontend

from mallorn.core.check_option_kwargs import free_dimensions_error
from mallorn.core.errors import InvalidModel
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import TensorSpec
from mallorn.graphc.export import compile_network as stock
from mallorn.graphc.onnx.bound_indices import bound_indices
from mallorn.graphc.onnx.relax_modules import load_module, module_text
from mallorn.graphc.ranges import dispatch_by_shape, generalize_two_lengths
from mallorn.workers.interfaces.model_compiler import Shapes
from mallorn.workers.tvm.network.check_onnx_model import (
    LIST,
    describe_tvm_error,
    graph_inputs,
    read_model,
    refuse_string_inputs,
    refuse_unknown_operators,
)
from mallorn.workers.tvm.network.run_recipe_passes import PassFailed
from mallorn.workers.tvm.programs.buffer_bounds import check_functions

# Errors of the ONNX importer's converters for unsupported models (TVMError is a RuntimeError).
_REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """An imported model: weights are constants in `mod`, whose `main` takes the inputs."""

    mod: Any
    inputs: list[TensorSpec]  # in calling order
    outputs: list[TensorSpec]
    operators: dict[str, int]  # number of nodes of each operator in the ONNX graph


@dataclass(frozen=True)
class Ends:
    """The shapes of a model's inputs and outputs at given `sizes` of its free dimensions."""

    sizes: dict[str, int]
    inputs: Shapes
    outputs: list[list[int]]


def load_network(path: str | Path, input_shapes: Shapes | None = None, target: Any = None) -> ImportedModel:
    """Read, check and import an ONNX file, optionally for a target. Raises InvalidModel."""
    model = read_model(path)
    shapes = input_shapes or {}
    inputs = {value.name: value.type.tensor_type.shape for value in graph_inputs(model.graph)}
    unknown_ranks = {
        value.name
        for value in graph_inputs(model.graph)
        if not value.type.tensor_type.HasField("shape") and module_text(model) is None
    }
    for name, shape in shapes.items():
        if name not in inputs:
            raise InvalidModel(f"the model has no input {name!r}", hint=f"the inputs are {', '.join(inputs)}")
        if len(shape) != len(inputs[name].dim) and name not in unknown_ranks:
            raise InvalidModel(
                f"input {name!r} has {len(inputs[name].dim)} dimensions, not {len(shape)}",
                hint=f"the model declares {_describe_inputs(model.graph, [name])}",
            )
    free = {
        name: [dim.dim_value or dim.dim_param or "?" for dim in shape.dim]
        for name, shape in inputs.items()
        if name not in shapes and not all(dim.dim_value for dim in shape.dim)
    } | {name: ["..."] for name in unknown_ranks.difference(shapes)}
    if free:
        raise free_dimensions_error(free, shapes)
    try:
        # The importer prints before it raises, but stdout belongs to the child's protocol.
        with redirect_stdout(io.StringIO()), name_nodes_in_errors():
            if module_text(model) is None:
                simple = stock.simplify_onnx_model(model, shapes)
                refuse_unknown_operators(simple, stock.patch_importer_and_list_operators())
                refuse_string_inputs(simple.graph)
                mod = stock.convert_to_relax(simple, shapes, target)
            else:
                mod = bound_indices(load_module(model, shapes))
                check_functions(mod)
    except _REFUSALS as error:
        hint = f"pip install onnxsim && python -m onnxsim MODEL OUT   (then tune OUT)   {LIST}"
        if shapes:
            declared = _describe_inputs(model.graph, shapes)
            hint = f"choose an --input-shape that fits the shapes that the model declares: {declared}"
        node_name = next(iter(getattr(error, "__notes__", ())), "the model")  # of the node that failed
        message = f"TVM cannot import {node_name}: {describe_tvm_error(error)}"
        raise InvalidModel(message, hint=hint) from error
    params, result = mod["main"].params, mod["main"].ret_ty
    results = result.fields if isinstance(result, tvm.relax.TupleType) else [result]
    return ImportedModel(
        mod,
        inputs=[_spec(value.name, p.ty) for value, p in zip(graph_inputs(model.graph), params, strict=True)],
        outputs=[_spec(value.name, ty) for value, ty in zip(model.graph.output, results, strict=True)],
        operators=dict(Counter(node.op_type for node in model.graph.node)),
    )


def _spec(name: str, ty: Any) -> TensorSpec:
    try:
        shape = [int(dim) for dim in ty.shape]
    except TypeError:
        raise InvalidModel(
            f"the shape of {name!r} depends on the data, so its tasks cannot be tuned",
            hint="export the model with fixed shapes",
        ) from None
    return TensorSpec(name=name, dtype=str(ty.dtype), shape=shape)


def _describe_inputs(graph: GraphProto, names: Iterable[str]) -> str:
    shapes = {value.name: value.type.tensor_type.shape for value in graph_inputs(graph)}
    sizes = {name: [str(dim.dim_value or dim.dim_param or "?") for dim in shapes[name].dim] for name in names}
    return "; ".join(f"{name} [{', '.join(dims)}]" for name, dims in sizes.items())


def import_at_point(
    model_path: str, dynamic: Dynamic, point: dict[str, int], target: Any
) -> tuple[ImportedModel, list[Ends]]:
    """Import a model at given sizes of its free dimensions. A growing dimension, whose range
    begins at 0, stays free; `inputs` and `outputs` of the returned model have its largest
    size. Also return the shapes of several imports, which show how outputs grow with it."""
    networks, ends = [], []
    for sizes in dispatch_by_shape.sample_sizes(dynamic.ranges, point):
        network = load_network(model_path, dynamic.shapes(sizes), target)
        ends.append(Ends(sizes, dynamic.shapes(sizes), [spec.shape for spec in network.outputs]))
        networks.append(network)
    try:
        mod = generalize_two_lengths.generalize(*(n.mod for n in networks), *dynamic.growing_dimensions)
    except ValueError as error:
        name = dynamic.growing_dimensions[0]
        raise InvalidModel(
            f"the dimension {name!r} cannot have a range from 0: {error}",
            hint=f"give it one size, --dynamic {name}=64, or export the model with positions and a mask "
            "as inputs",
        ) from None
    first, last = networks[0], networks[-1]
    high = max((dynamic.ranges[name][1] for name in dynamic.growing_dimensions), default=0)
    shortest, longest = generalize_two_lengths.LENGTHS

    def largest_specs(specs: list[TensorSpec], longer_specs: list[TensorSpec]) -> list[TensorSpec]:
        extrapolated = []
        for spec, longer in zip(specs, longer_specs, strict=True):
            shape = [
                size + (longer_size - size) // (longest - shortest) * (high - shortest)
                for size, longer_size in zip(spec.shape, longer.shape, strict=True)
            ]
            extrapolated.append(spec.model_copy(update={"shape": shape}))
        return extrapolated

    inputs = largest_specs(first.inputs, last.inputs)
    outputs = largest_specs(first.outputs, last.outputs)
    return replace(first, mod=mod, inputs=inputs, outputs=outputs), ends


@contextmanager
def name_unsized_node_in_errors(path: str | Path, input_shapes: Shapes | None) -> Iterator[None]:
    """Turn PassFailed into InvalidModel that names a node whose output has no fixed size."""
    try:
        yield
    except PassFailed as error:
        shapes = input_shapes or {}
        model = stock.simplify_onnx_model(read_model(path), shapes)
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
            hint=f"export the model with fixed sizes   {LIST}",
        ) from error


@contextmanager
def name_nodes_in_errors() -> Iterator[None]:
    """Add a note that names the failing node to errors that the ONNX importer raises."""
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


def unsized_node(model: ModelProto) -> NodeProto | None:
    """Return the first node whose output shape does not follow from the model, or None."""
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    sized = {
        value.name
        for value in (*inferred.value_info, *inferred.output)
        if value.type.tensor_type.HasField("shape")
        and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    }
    return next((node for node in inferred.node if not sized.issuperset(filter(None, node.output))), None)
