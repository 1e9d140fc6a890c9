"""Modules and tensor functions of TVM as input: they arrive as they were, and strangers' are checked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax, te

from mallorn.client.onnx_export import as_onnx, to_onnx
from mallorn.core.errors import InvalidModel
from mallorn.graphc.export.export_checks import is_relax_file
from mallorn.workers.tvm.network.extract_tasks import extract
from mallorn.workers.tvm.network.graph_recipes import TUNED
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from tests.unit.graphc import networks

TARGET = '{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}'


def network(size: Any = 4) -> Any:
    weights = networks.weights(256, 8)
    return networks.network(
        lambda emit, x: relax.op.nn.softmax(emit(relax.op.matmul(x, weights)), -1), (size, 256)
    )


def function() -> Any:
    a, b = te.placeholder((64, 32), name="A"), te.placeholder((32, 16), name="B")
    k = te.reduce_axis((0, 32), name="k")
    return te.create_prim_func(
        [a, b, te.compute((64, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]
    )


def test_a_file_of_a_module_is_imported_with_its_inputs(tmp_path: Path) -> None:
    (file := tmp_path / "net.json").write_text(tvm.ir.save_json(network()))
    with as_onnx(file) as model:
        assert is_relax_file(model)
        imported = load_network(model)
    assert [(spec.name, spec.dtype, spec.shape) for spec in imported.inputs] == [("x0", "float32", [4, 256])]
    assert [(spec.name, spec.shape) for spec in imported.outputs] == [("output_0", [4, 8])]
    tvm.ir.assert_structural_equal(imported.mod["main"], network()["main"])


def test_a_free_dimension_is_told_and_bound(tmp_path: Path) -> None:
    model = to_onnx(network(tvm.tirx.Var("n", "int64")), tmp_path / "net.onnx")
    with pytest.raises(InvalidModel, match=r"x0 \[n, 256\]"):
        load_network(model)
    assert load_network(model, {"x0": [3, 256]}).outputs[0].shape == [3, 8]


def test_a_tensor_function_is_one_task(tmp_path: Path) -> None:
    model = to_onnx(function(), tmp_path / "f.onnx")
    extraction = extract(str(model), TARGET, TUNED, {})
    assert [spec.name for spec in extraction.graph.inputs] == ["A", "B"]
    assert [(spec.name, spec.shape) for spec in extraction.graph.outputs] == [("output_0", [64, 16])]
    [task] = extraction.tasks
    assert (task.flops, task.extents) == (2.0 * 64 * 16 * 32, (64, 16, 32))


def packed() -> str:
    system = networks.network(
        lambda _, x: relax.call_dps_packed("system", [x], relax.TensorType([4], "float32")), (4,)
    )
    return str(tvm.ir.save_json(system))


def printing() -> str:
    text = str(tvm.ir.save_json(network()))
    return text.replace('"relax.nn.softmax"', '"relax.print"')


def cut_constant() -> str:
    graph = json.loads(tvm.ir.save_json(network()))
    [tensor] = [node for node in graph["nodes"] if node["type"] == "ffi.Tensor"]
    tensor["data"] = tensor["data"][:-64]
    return json.dumps(graph)


def backward_reference() -> str:
    graph = json.loads(tvm.ir.save_json(network()))
    [call] = [node for node in graph["nodes"] if node["type"] == "relax.expr.Function"]
    call["data"]["body"] = -1
    return json.dumps(graph)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (packed, "which is not allowed"),
        (printing, r"relax\.print"),
        (cut_constant, "a constant"),
        (backward_reference, "has -1 as its body"),
    ],
)
def test_a_strangers_module_is_refused_before_tvm_reads_it(
    write: Callable[[], str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "net.json").write_text(write())
    monkeypatch.setattr(tvm.ir, "load_json", lambda _: pytest.fail("it was loaded"))
    with pytest.raises(InvalidModel, match=reason), as_onnx(file) as model:
        load_network(model)


@pytest.mark.parametrize("text", ["{}", "[]", "text", '{"nodes": [{"type": "int"}], "root_index": 0}'])
def test_other_json_is_refused_with_the_line_that_writes_a_module(text: str, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(text)
    with pytest.raises(InvalidModel, match="not a module of TVM") as caught, as_onnx(tmp_path / "net.json"):
        pass
    assert "tvm.ir.save_json" in caught.value.hint


def test_a_module_without_a_main_of_tensors_is_refused(tmp_path: Path) -> None:
    module = network()
    module["other"] = module["main"].with_attr("global_symbol", "other")
    del module["main"]
    with pytest.raises(InvalidModel, match="no main that takes and returns tensors"):
        load_network(to_onnx(module, tmp_path / "net.onnx"))
