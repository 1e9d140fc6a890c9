"""When an import fails, every node in its way is found, and the largest part without them is cut out."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from mallorn.core.errors import InvalidModel
from mallorn.graphc.export.compare_with_onnxruntime import run_onnxruntime
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.outside_nodes import cut_region, divide, find_region
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from tests.fixtures.onnx_network import onnx_network

TARGET_TEXT = '{"kind":"llvm","mcpu":"haswell","num-cores":2}'
TARGET = as_tvm_target(TARGET_TEXT)
node = helper.make_node


def test_nodes_that_no_converter_takes_are_found_with_their_reasons() -> None:
    model = onnx_network(
        [
            node("Relu", ["x"], ["a"]),
            node("MelWeightMatrix", ["bins", "length", "rate", "low", "high"], ["mel"]),
            node("NonZero", ["a"], ["places"]),
            node("MatMul", ["a", "w"], ["y"]),
        ],
        {"x": (2, 3), "bins": (), "length": (), "rate": (), "low": (), "high": ()},
        {"y": (2, 4), "places": (2, "count"), "mel": None},
        w=np.ones((3, 4), "float32"),
    )
    parts = divide(model, {}, TARGET)
    outside = parts.outside
    assert [len(region.graph.node) for region in parts.regions] == [2]
    assert {each.node.op_type for each in outside} == {"NonZero", "MelWeightMatrix"}
    assert all(each.reason for each in outside)


def test_a_graph_that_comes_in_has_none() -> None:
    model = onnx_network([node("Relu", ["x"], ["y"])], {"x": ("n", 3)}, {"y": None})
    assert divide(model, {"x": [2, 3]}, TARGET).outside == ()


def test_a_region_is_found_again_by_its_ends_and_computes_the_same(tmp_path: Path) -> None:
    model = onnx_network(
        [
            node("Relu", ["x"], ["a"]),
            node("MatMul", ["a", "w"], ["b"]),
            node("Det", ["b"], ["d"]),
            node("Add", ["d", "one"], ["y"]),
        ],
        {"x": ("n", 64, 64)},
        {"y": None},
        w=np.eye(64, dtype="float32"),
        one=np.ones(1, "float32"),
    )
    path, region_path, again = (str(tmp_path / name) for name in ("model.onnx", "region.onnx", "again.onnx"))
    onnx.save(model, path)
    region = find_region(path, TARGET_TEXT, {"x": [2, 64, 64]}, region_path)
    assert region is not None
    assert (region.inputs, region.outputs, region.nodes, region.rest) == (["x"], ["b"], 2, 1)
    assert [(each.operator, each.count) for each in region.outside] == [("Det", 1)]
    assert region.outside[0].reason
    assert region.total == 4
    cut_region(path, {"x": [2, 64, 64]}, region, again)
    assert Path(again).read_bytes() == Path(region_path).read_bytes()
    network = load_network(again, {}, TARGET)
    assert [(spec.name, spec.shape) for spec in network.inputs] == [("x", [2, 64, 64])]
    x = np.random.default_rng(0).standard_normal((2, 64, 64)).astype("float32")
    (expected,) = run_onnxruntime(again, {"x": x})
    np.testing.assert_allclose(expected, np.maximum(x, 0), rtol=1e-5)
    with pytest.raises(InvalidModel, match="not the model that was tuned"):
        cut_region(path, {"x": [2, 64, 64]}, region.model_copy(update={"outputs": ["nothing"]}), again)


def test_nothing_is_cut_where_too_little_can_be_compiled(tmp_path: Path) -> None:
    model = onnx_network([node("Relu", ["x"], ["a"]), node("Det", ["a"], ["y"])], {"x": (2, 2)}, {"y": None})
    onnx.save(model, path := str(tmp_path / "model.onnx"))
    assert find_region(path, TARGET_TEXT, {}, str(tmp_path / "region.onnx")) is None
    assert not (tmp_path / "region.onnx").exists()
