"""Indices that a model computes stay inside of what they index; modules are refused or clamped."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

from mallorn.core.errors import InvalidModel
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.programs.allowed_programs import check_network
from tests.fixtures.onnx_network import onnx_network, saved

FAR = np.array([1 << 30], "int64")


def model(*nodes: Any, **constants: Any) -> ModelProto:
    """A model whose input `i` indexes the input `x`, and whose output `y` has no declared shape."""
    return onnx_network(nodes, {"x": [4, 5], "i": np.zeros(2, "int64")}, {"y": None}, **constants)


def run(onnx_model: ModelProto, folder: Path, x: Any, i: Any) -> Any:
    (path := folder / "model.onnx").write_bytes(onnx_model.SerializeToString())
    mod = relax.transform.LegalizeOps()(load_network(path).mod)
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(i)).numpy()


X = np.arange(20, dtype="float32").reshape(4, 5)
COLUMNS = helper.make_node("Unsqueeze", ["j", "one"], ["k"])
SHIFT = helper.make_node("Mul", ["i", "far"], ["j"])
ROWS = helper.make_node("Expand", ["k", "wide"], ["e"])
SCATTERS = {
    "ScatterND": (COLUMNS, helper.make_node("ScatterND", ["x", "k", "u"], ["y"])),
    "ScatterElements": (COLUMNS, ROWS, helper.make_node("ScatterElements", ["x", "e", "u"], ["y"], axis=0)),
}
GATHERS = {
    "Gather": (helper.make_node("Gather", ["x", "j"], ["y"]),),
    "GatherND": (COLUMNS, helper.make_node("GatherND", ["x", "k"], ["y"])),
    "GatherElements": (COLUMNS, ROWS, helper.make_node("GatherElements", ["x", "e"], ["y"], axis=0)),
}
CONSTANTS = {"one": [1], "wide": [2, 5], "u": np.ones((2, 5), "float32")}


@pytest.mark.parametrize("name", [*SCATTERS, *GATHERS])
def test_an_index_that_a_model_computes_reaches_no_other_memory(name: str, tmp_path: Path) -> None:
    nodes = {**SCATTERS, **GATHERS}[name]
    result = run(model(SHIFT, *nodes, far=FAR, **CONSTANTS), tmp_path, X, np.array([1, -3], "int64"))
    assert np.isin(result, [*X.ravel(), 1.0]).all()


@pytest.mark.parametrize("name", SCATTERS)
def test_an_index_of_a_write_that_the_caller_gives_reaches_no_other_memory(name: str, tmp_path: Path) -> None:
    nodes = (helper.make_node("Identity", ["i"], ["j"]), *SCATTERS[name])
    result = run(model(*nodes, **CONSTANTS), tmp_path, X, np.array([1 << 30, -(1 << 30)], "int64"))
    assert np.isin(result, [*X.ravel(), 1.0]).all()


@pytest.mark.parametrize("name", [*SCATTERS, *GATHERS])
def test_indices_in_range_mean_what_onnx_says(name: str, tmp_path: Path) -> None:
    nodes = (helper.make_node("Add", ["i", "i"], ["j"]), *{**SCATTERS, **GATHERS}[name])
    onnx_model, i = model(*nodes, **CONSTANTS), np.array([1, -1], "int64")
    (expected,) = ReferenceEvaluator(onnx_model).run(None, {"x": X, "i": i})
    np.testing.assert_array_equal(run(onnx_model, tmp_path, X, i), expected)


def test_programs_of_lookups_by_an_input_stay_as_they_were(tmp_path: Path) -> None:
    lookup = model(helper.make_node("Gather", ["x", "i"], ["y"]))
    (path := tmp_path / "model.onnx").write_bytes(lookup.SerializeToString())
    text = load_network(path).mod.script()
    assert "R.take" in text
    assert "minimum" not in text


PARAMETERS = 'A: T.Buffer((16,), "float32"), I: T.Buffer((8,), "int64"), B: T.Buffer((8,), "float32")'
HEAD = f"@T.prim_func(s_tir=True)\ndef main({PARAMETERS}):\n"


def wrapped(body: str, folder: Path) -> Path:
    function = tvm.script.from_source(f"{HEAD}    for i in range(8):\n        {body}\n")
    text = tvm.ir.save_json(tvm.IRModule({"main": function}))
    node = helper.make_node("RelaxModule", [], ["outputs"], domain="mallorn.relax", json=text)
    return Path(saved(folder / "module.onnx", [node], {}, {}))


def test_a_module_that_writes_outside_of_its_buffers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidModel, match=r"the module of TVM is refused: the program writes B\[i \+ 1073741824\]"
    ):
        load_network(wrapped("B[i + 1073741824] = A[i]", tmp_path))


def test_a_module_that_writes_where_its_input_says_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"the program writes B\[I_1\[i\]\], which has 8 elements"):
        load_network(wrapped("B[I[i]] = A[i]", tmp_path))


def test_a_module_reads_inside_of_its_buffers_wherever_its_input_says(tmp_path: Path) -> None:
    mod = load_network(wrapped("B[i] = A[I[i]]", tmp_path)).mod
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    i = np.array([0, 3, 15, 16, -1, 1 << 40, -(1 << 40), 7], "int64")
    result = machine["main"](*map(tvm.runtime.tensor, (np.arange(16, dtype="float32"), i))).numpy()
    np.testing.assert_array_equal(result, np.clip(i, 0, 15))


def moved(data: Any, indices: Any, values: Any, name: str) -> Any:
    match name:
        case "index_put":
            return relax.op.index_put(data, (indices, indices), values)
        case "index_tensor":
            return relax.op.index_tensor(data, [indices])
        case "slice_scatter":
            return relax.op.slice_scatter(data, data, 0, 2, 1, axis=0)
        case "dynamic_strided_slice":
            return relax.op.dynamic_strided_slice(data, indices, indices, indices)
    return relax.op.reverse_sequence(data, indices, seq_axis=1, batch_axis=0)


@pytest.mark.parametrize(
    "name", ["index_put", "index_tensor", "slice_scatter", "dynamic_strided_slice", "reverse_sequence"]
)
def test_a_module_calls_no_operator_whose_indices_nobody_bounds(name: str) -> None:
    types = [((2, 2), "float32"), ((2,), "int64"), ((2,), "float32")]
    parameters = [relax.Var(f"p{number}", relax.TensorType(*ty)) for number, ty in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        builder.emit_func_output(builder.emit(moved(*parameters, name)))
    with pytest.raises(InvalidModel, match=name):
        check_network(tvm.ir.save_json(builder.get()))
