"""Relax modules and tensor functions of TVM that arrive as the one node of an ONNX file.

The node's operator is `RelaxModule` of the domain `mallorn.relax`, and its attribute `json` is
the text that ``tvm.ir.save_json`` wrote. That must be trusted or checked before it is loaded.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from onnx import ModelProto, helper
from tvm import relax

DOMAIN, OPERATOR, TEXT = "mallorn.relax", "RelaxModule", "json"


def module_text(model: ModelProto) -> str | None:
    """Return the JSON of the module in an ONNX file; None if it is an ordinary model."""
    nodes = model.graph.node
    if len(nodes) != 1 or (nodes[0].domain, nodes[0].op_type) != (DOMAIN, OPERATOR):
        return None
    return next((str(a.s, "utf-8") for a in nodes[0].attribute if a.name == TEXT), "")


def load_module(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Return the module with a Relax `main`, and with free dimensions bound by `shapes`.
    Raises ValueError, or an error of TVM, if it has no `main`."""
    mod = tvm.ir.load_json(text := module_text(model) or "")
    [*functions] = mod.functions.values()
    if len(functions) == 1 and isinstance(functions[0], tvm.tirx.PrimFunc):
        mod = _call_function(functions[0], text)
    sizes: dict[str, int] = {}
    for parameter in mod["main"].params:
        for dim, size in zip(parameter.ty.shape, shapes.get(parameter.name, ()), strict=False):
            if not isinstance(dim, tvm.tirx.IntImm) and sizes.setdefault(str(dim), size) != size:
                raise ValueError(f"the dimension {dim} has two sizes")
    return relax.transform.BindSymbolicVars(sizes, "main")(mod) if sizes else mod


def declare_inputs_and_outputs(model: ModelProto) -> None:
    """Add the inputs and outputs of a module's `main` to the file's graph; do nothing to an ordinary model.

    Raises what `load_module` raises, and AttributeError if one is not a tensor.
    """
    if module_text(model) is None:
        return
    main = load_module(model, {})["main"]
    results = main.ret_ty.fields if isinstance(main.ret_ty, relax.TupleType) else [main.ret_ty]
    inputs = [(parameter.name, parameter.ty) for parameter in main.params]
    outputs = [(f"output_{index}", ty) for index, ty in enumerate(results)]
    for values, specs in ((model.graph.input, inputs), (model.graph.output, outputs)):
        for name, ty in specs:
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(str(ty.dtype)))
            shape = [int(dim) if isinstance(dim, tvm.tirx.IntImm) else str(dim) for dim in ty.shape]
            values.append(helper.make_tensor_value_info(name, kind, shape))


def _call_function(function: Any, text: str) -> Any:
    """Return a module whose `main` calls a tensor function (JSON: `text`), with what it writes as outputs."""
    nodes = json.loads(text)["nodes"]
    buffers = [nodes[node["data"]["buffer"]] for node in nodes if node["type"] == "tirx.BufferStore"]
    stored_names = {nodes[buffer["data"]["name"]]["data"] for buffer in buffers}
    variables = [
        relax.Var(buffer.name, relax.TensorType(buffer.ty.shape, str(buffer.ty.dtype)))
        for buffer in function.params
    ]
    inputs = [variable for variable in variables if variable.name not in stored_names]
    outputs = [variable.ty for variable in variables if variable.name in stored_names]
    if variables[: len(inputs)] != inputs:
        raise ValueError("the outputs of a tensor function must be its last parameters")
    builder = relax.BlockBuilder()
    # It becomes the callee of main, so it must not be exported by that name.
    callee = builder.add_func(function.without_attr("global_symbol"), "tensor_function")
    with builder.function("main", inputs):
        builder.emit_func_output(builder.emit(relax.call_tir(callee, inputs, outputs)))
    return builder.get()
