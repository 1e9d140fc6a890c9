"""Relax modules and TIR functions that came in an ONNX file, as the text of its one node.

So they pass through everything that stores and sends models: inputs and outputs are those
of the file, in order, and the operator `RelaxModule` of the domain `mallorn.relax` has the JSON
that `tvm.ir.save_json` wrote as its attribute `json`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from onnx import ModelProto
from tvm import relax

DOMAIN, OPERATOR, TEXT = "mallorn.relax", "RelaxModule", "json"


def module_text(model: ModelProto) -> str | None:
    """Return the JSON of the module in an ONNX model; None if it is a usual model."""
    nodes = model.graph.node
    if len(nodes) != 1 or (nodes[0].domain, nodes[0].op_type) != (DOMAIN, OPERATOR):
        return None
    return next((str(a.s, "utf-8") for a in nodes[0].attribute if a.name == TEXT), "")


def load(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Return the module, with a Relax `main` and free dimensions bound by `shapes`.

    The text must be trusted or checked. Raises ValueError if the module has another form
    than the file says.
    """
    mod = tvm.ir.load_json(module_text(model))
    if len(mod.functions) == 1 and isinstance(
        function := next(iter(mod.functions.values())), tvm.tirx.PrimFunc
    ):
        mod = _call_function(function, [value.name for value in model.graph.input])
    if "main" not in [variable.name_hint for variable in mod.functions]:
        raise ValueError("the module has no function main")
    parameters = mod["main"].params
    if len(parameters) != len(model.graph.input):
        raise ValueError("main takes other inputs than the file has")
    sizes: dict[str, int] = {}
    for value, parameter in zip(model.graph.input, parameters, strict=True):
        for dim, size in zip(parameter.ty.shape or (), shapes.get(value.name, ()), strict=False):
            if not isinstance(dim, tvm.tirx.IntImm) and sizes.setdefault(str(dim), size) != size:
                raise ValueError(f"the dimension {dim} has two sizes")
    return relax.transform.BindSymbolicVars(sizes, "main")(mod) if sizes else mod


def _call_function(function: Any, inputs: Sequence[str]) -> Any:
    """Return a module whose `main` calls a TIR function; parameters that are no inputs are its outputs."""
    parameters = [(str(parameter.name), parameter.ty) for parameter in function.params]
    if [name for name, _ in parameters[: len(inputs)]] != list(inputs):
        raise ValueError("the outputs of a TIR function must be its last parameters")
    variables = [relax.Var(name, _tensor(ty)) for name, ty in parameters[: len(inputs)]]
    outputs = [_tensor(ty) for _, ty in parameters[len(inputs) :]]
    builder = relax.BlockBuilder()
    # It becomes the callee of main, so it must not be exported by that name.
    callee = builder.add_func(function.without_attr("global_symbol"), "tensor_function")
    with builder.function("main", variables):
        with builder.dataflow():
            call = relax.call_tir(callee, variables, outputs if len(outputs) > 1 else outputs[0])
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()


def _tensor(ty: Any) -> Any:
    return relax.TensorType(list(ty.shape), str(ty.dtype.dtype if hasattr(ty.dtype, "dtype") else ty.dtype))
