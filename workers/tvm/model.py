"""An ONNX file into a Relax module, or an InvalidModel that says what is wrong and what to type."""

import contextlib
import io
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from onnx import GraphProto, ModelProto
from tvm.relax.frontend.onnx import from_onnx

from mallorn.core.errors import InvalidModel
from mallorn.core.values.graph import TensorSpec
from workers.faces.graphs import Shapes
from workers.tvm.onnx_reader import first_line, graph_inputs, read_model

# What the frontend's converters raise when they meet what they do not know (TVMError is a RuntimeError).
_REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Network:
    """An imported model: weights are constants of `mod`, whose `main` takes the inputs alone."""

    mod: Any
    inputs: list[TensorSpec]  # in calling order
    outputs: list[TensorSpec]
    operators: dict[str, int]  # how many nodes of each operator the ONNX graph has


def load_network(path: str | Path, input_shapes: Shapes | None = None) -> Network:
    """Read, check and import an ONNX file. Raises InvalidModel."""
    model = read_model(Path(path).read_bytes())
    shapes = input_shapes or {}
    _check_shapes(model.graph, shapes)
    mod = _import(model, shapes)
    operators = dict(Counter(node.op_type for node in model.graph.node))
    return Network(mod, _inputs(model.graph, mod), _outputs(model.graph, mod), operators)


def _inputs(graph: GraphProto, mod: Any) -> list[TensorSpec]:
    types = [param.ty for param in mod["main"].params]
    names = [value.name for value in graph_inputs(graph)]
    return [_spec(name, ty) for name, ty in zip(names, types, strict=True)]


def _outputs(graph: GraphProto, mod: Any) -> list[TensorSpec]:
    ty = mod["main"].ret_ty
    types = ty.fields if isinstance(ty, tvm.relax.TupleType) else [ty]
    return [_spec(value.name, ty) for value, ty in zip(graph.output, types, strict=True)]


def _spec(name: str, ty: Any) -> TensorSpec:
    try:
        shape = [int(dim) for dim in ty.shape]
    except TypeError:
        raise InvalidModel(
            f"the shape of {name!r} depends on the data, so its tasks cannot be tuned",
            hint="export the model with fixed shapes",
        ) from None
    return TensorSpec(name=name, dtype=str(ty.dtype), shape=shape)


def _check_shapes(graph: GraphProto, shapes: Shapes) -> None:
    inputs = {value.name: value.type.tensor_type.shape for value in graph_inputs(graph)}
    for name, shape in shapes.items():
        if name not in inputs:
            raise InvalidModel(f"the model has no input {name!r}", hint=f"its inputs: {', '.join(inputs)}")
        if len(shape) != len(inputs[name].dim):
            raise InvalidModel(
                f"input {name!r} has {len(inputs[name].dim)} dimensions, not {len(shape)}",
                hint=f"the model declares {_declared(graph, [name])}",
            )
    free = {n: s for n, s in inputs.items() if n not in shapes and any(not d.dim_value for d in s.dim)}
    if free:
        bound = {name: [dim.dim_value or 1 for dim in shape.dim] for name, shape in free.items()}
        hints = (f"--input-shape {name}:{','.join(map(str, shape))}" for name, shape in bound.items())
        raise InvalidModel(
            f"these inputs have free dimensions: {_declared(graph, free)}",
            hint=" ".join(hints),
            suggest={"input_shapes": {**shapes, **bound}},
        )


def _dims(shape: Any) -> str:
    return "[" + ", ".join(str(d.dim_value or d.dim_param or "?") for d in shape.dim) + "]"


def _import(model: ModelProto, shapes: Shapes) -> tvm.IRModule:
    told = io.StringIO()  # the frontend prints before it raises; a child's stdout belongs to its protocol
    try:
        with contextlib.redirect_stdout(told), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return from_onnx(model, shape_dict=shapes)
    except _REFUSALS as error:
        where = told.getvalue().partition(",")[0].removeprefix("Error converting operator ").strip()
        raise InvalidModel(
            f"TVM cannot import {where or 'the model'}: {first_line(error)}",
            hint=_import_hint(model.graph, shapes),
        ) from error


def _import_hint(graph: GraphProto, shapes: Shapes) -> str:
    if not shapes:
        return "pip install onnxsim && python -m onnxsim MODEL OUT   (then tune OUT)"
    return f"choose an --input-shape that fits what the model declares: {_declared(graph, shapes)}"


def _declared(graph: GraphProto, names: Iterable[str]) -> str:
    shapes = {value.name: value.type.tensor_type.shape for value in graph_inputs(graph)}
    return "; ".join(f"{name} {_dims(shapes[name])}" for name in names)
