"""Relax modules and TIR functions as ONNX files, as the service accepts and stores models.

The JSON that `tvm.ir.save_json` writes becomes the attribute of the file's one node. It is
read here without TVM, only for names, types and shapes; a sandboxed child of a worker checks
and loads it (graphc/onnx/relax_modules.py).
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import InvalidModel
from mallorn.core.installation import import_optional_module

DOMAIN, OPERATOR, TEXT = "mallorn.relax", "RelaxModule", "json"
MOST_BYTES: Final = (1 << 31) - (1 << 20)  # protobuf allows 2 GB
HINT: Final = "write it by   open('module.json', 'w').write(tvm.ir.save_json(module))"
FUNCTION, PRIM_FUNCTION = "relax.expr.Function", "tirx.PrimFunc"
Spec = tuple[str, str, list[int | str]]  # name, data type, and sizes or names of free dimensions


def is_relax_object(model: Any) -> bool:
    """Return whether this is an IRModule or a PrimFunc of TVM, without importing TVM."""
    tvm = sys.modules.get("tvm")
    return tvm is not None and isinstance(model, tvm.IRModule | tvm.tirx.PrimFunc)


def write_relax_object(model: Any, file: Path) -> None:
    """Write an IRModule or a PrimFunc as an ONNX file. Raises InvalidModel."""
    tvm: Any = sys.modules["tvm"]
    module = model if isinstance(model, tvm.IRModule) else tvm.IRModule({"main": model})
    write_relax_file(tvm.ir.save_json(module), file)


def convert_relax_file(model: Path, file: Path) -> None:
    """Write a module's JSON as an ONNX file. Raises InvalidModel."""
    write_relax_file(model.read_text(errors="replace"), file)


def write_relax_file(text: str, file: Path) -> None:
    onnx = import_optional_module("onnx", "a module of TVM", "worker")
    if len(text) > MOST_BYTES:
        raise InvalidModel(
            "the module is larger than 2 GB as JSON",
            hint="make its weights inputs: relax.frontend.detach_params",
        )
    try:
        inputs, outputs = _Signature(text).of_module()
    except (LookupError, TypeError, AttributeError, RecursionError, ValueError) as error:
        message = str(error) if type(error) is ValueError else "it is not what tvm.ir.save_json writes"
        raise InvalidModel(f"this JSON is no module of TVM: {message}", hint=HINT) from None
    helper = onnx.helper

    def values(specs: Sequence[Spec]) -> list[Any]:
        kinds = [helper.np_dtype_to_tensor_dtype(onnx.numpy_helper.np.dtype(dtype)) for _, dtype, _ in specs]
        return [
            helper.make_tensor_value_info(name, kind, shape)
            for kind, (name, _, shape) in zip(kinds, specs, strict=True)
        ]

    names = [[name for name, _, _ in specs] for specs in (inputs, outputs)]
    node = helper.make_node(OPERATOR, *names, domain=DOMAIN, **{TEXT: text})
    graph = helper.make_graph([node], "module", values(inputs), values(outputs))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    file.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


class _Signature:
    """Reads what `main` takes and returns from the node graph that `tvm.ir.save_json` writes."""

    def __init__(self, text: str) -> None:
        graph = json.loads(text)
        self._nodes: list[dict[str, Any]] = graph["nodes"]
        self._root: int = graph["root_index"]

    def of_module(self) -> tuple[list[Spec], list[Spec]]:
        """Return inputs and outputs. Raises ValueError with a sentence, and LookupError and others."""
        kind, module = self._node(self._root)
        if kind != "ir.IRModule":
            raise ValueError(f"it is a {kind}, not an IRModule")
        entries = self._items(module["functions"])
        functions = {
            self._name(self._data(key)["name_hint"]): value
            for key, value in zip(entries[::2], entries[1::2], strict=True)
        }
        main = functions.get("main", next(iter(functions.values())) if len(functions) == 1 else None)
        if main is None:
            raise ValueError(f"none of its functions is called main: {', '.join(functions)}")
        kind, function = self._node(main)
        parameters = self._items(function["params"])
        if kind == FUNCTION:
            inputs = [self._spec(self._name(self._data(i)["name"]), self._data(i)["ty"]) for i in parameters]
            result = function["ret_ty"]
            kind, data = self._node(result)
            results = self._items(data["fields"]) if kind == "ir.TupleType" else [result]
            names = ["output"] if len(results) == 1 else [f"output_{index}" for index in range(len(results))]
            return inputs, [self._spec(*pair) for pair in zip(names, results, strict=True)]
        if kind != PRIM_FUNCTION or len(functions) > 1:
            raise ValueError("main is no Relax function")
        written = {node["data"]["buffer"] for node in self._nodes if node["type"] == "tirx.BufferStore"}
        specs = [
            (index in written, self._spec(self._name(self._data(index)["name"]), self._data(index)["ty"]))
            for index in parameters
        ]
        return [spec for is_out, spec in specs if not is_out], [spec for is_out, spec in specs if is_out]

    def _spec(self, name: str, ty: int) -> Spec:
        kind, data = self._node(ty)
        if kind not in ("relax.TensorType", "tirx.BufferType"):
            raise ValueError(f"{name} is no tensor but a {kind}")
        sizes = list(self._sizes(data["shape"], name))
        _, dtype = self._node(data["dtype"])
        return name, str(dtype["dtype"] if isinstance(dtype, dict) else dtype), sizes

    def _sizes(self, shape: int, name: str) -> Iterator[int | str]:
        kind, data = self._node(shape)
        for index in self._items(data["values"]) if kind == "relax.expr.ShapeExpr" else self._items(shape):
            kind, size = self._node(index)
            if kind not in ("ir.IntImm", "ir.Var"):
                raise ValueError(f"{name} has a size that is neither a number nor a name")
            yield int(self._data(size["value"])) if kind == "ir.IntImm" else self._name(size["name"])

    def _node(self, index: int) -> tuple[str, Any]:
        if index < 0:
            raise LookupError
        return self._nodes[index]["type"], self._nodes[index].get("data")

    def _data(self, index: int) -> Any:
        return self._node(index)[1]

    def _items(self, index: int) -> list[int]:
        items: list[int] = self._data(index)
        return items

    def _name(self, index: int) -> str:
        name: str = self._data(index)
        if not isinstance(name, str):
            raise TypeError
        return name
