"""Files that onnxruntime loads come in: nodes in any order, domains and metadata as tools write them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

from mallorn.core.errors import InvalidModel
from mallorn.workers.tvm.network.check_onnx_model import read_model
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from tests.fixtures.onnx_network import onnx_network, saved
from tests.unit.graphc.networks import run, run_onnxruntime

X = np.random.default_rng(2).standard_normal((3, 4)).astype("float32")
SIZES = {"x": [3, 4]}


def unsorted_nodes() -> list[NodeProto]:
    return [
        helper.make_node("Add", ["exponential", "sine"], ["y"], name="last"),
        helper.make_node("Exp", ["sine"], ["exponential"]),
        helper.make_node("Sin", ["x"], ["sine"], name="first"),
    ]


def test_unsorted_nodes_compute_what_onnxruntime_computes(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", unsorted_nodes(), SIZES, {"y": [3, 4]})
    np.testing.assert_allclose(run(load_network(path).mod, X), run_onnxruntime(path, X)[0], rtol=1e-5)


def test_nodes_of_branches_and_nodes_that_branches_read_are_sorted(tmp_path: Path) -> None:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])
    branch = helper.make_graph(unsorted_nodes()[:2], "then", [], [y])
    nodes = [
        helper.make_node("If", ["is_true"], ["z"], then_branch=branch, else_branch=branch),
        helper.make_node("Sin", ["x"], ["sine"]),
        helper.make_node("Identity", ["yes"], ["is_true"]),
    ]
    path = saved(tmp_path / "m.onnx", nodes, SIZES, {"z": [3, 4]}, yes=np.array(True))
    assert [node.op_type for node in read_model(path).graph.node] == ["Sin", "Identity", "If"]
    wanted = np.sin(X) + np.exp(np.sin(X))
    np.testing.assert_allclose(run(load_network(path).mod, X), wanted, rtol=1e-5)


def test_nodes_of_functions_are_sorted(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Both", ["x"], ["y"], unsorted_nodes(), opsets)
    call = helper.make_node("Both", ["x"], ["y"], domain="own")
    path = saved(tmp_path / "m.onnx", [call], SIZES, {"y": [3, 4]}, functions=[function])
    np.testing.assert_allclose(run(load_network(path).mod, X), np.sin(X) + np.exp(np.sin(X)), rtol=1e-5)


def test_sorted_nodes_keep_their_order(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sin", ["x"], [name]) for name in ("b", "a")]
    nodes.append(helper.make_node("Add", ["a", "b"], ["y"]))
    path = saved(tmp_path / "m.onnx", nodes, SIZES, {"y": [3, 4]})
    assert list(read_model(path).graph.node) == nodes


def test_nodes_that_read_each_other_are_refused_with_their_names(tmp_path: Path) -> None:
    nodes = unsorted_nodes()
    nodes[2].input[0] = "y"
    onnx.save(onnx_network(nodes, SIZES, {"y": [3, 4]}), path := tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match=r"read each other's results: .*first.*last"):
        read_model(path)


def relu(**changes: Any) -> onnx.ModelProto:
    weights = {"w": np.full((3, 4), 0.5, "float32")}
    nodes = [helper.make_node("Add", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    return onnx_network(nodes, SIZES, {"y": [3, 4]}, **changes, **weights)


def repeat_metadata(model: onnx.ModelProto) -> None:
    for value in ("a", "b"):
        model.metadata_props.add(key="framework", value=value)


def remove_graph_name(model: onnx.ModelProto) -> None:
    model.graph.name = ""


def use_long_domain(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.domain = "ai.onnx"
    model.opset_import.add(domain="ai.onnx", version=17)


def use_old_ir_version(model: onnx.ModelProto) -> None:
    model.ir_version = 3  # in which weights had to be inputs


def use_domain_without_import(model: onnx.ModelProto) -> None:
    model.graph.node[1].op_type, model.graph.node[1].domain = "Gelu", "com.microsoft"


def declare_other_inner_sizes(model: onnx.ModelProto) -> None:
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [7, 4]))


@pytest.mark.parametrize(
    "change",
    [
        repeat_metadata,
        remove_graph_name,
        use_long_domain,
        use_old_ir_version,
        use_domain_without_import,
        declare_other_inner_sizes,
    ],
)
def test_what_onnxruntime_does_not_need_is_not_required(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None]
) -> None:
    change(model := relu())
    onnx.save(model, path := tmp_path / "m.onnx")
    ours, theirs = run(load_network(path).mod, X), run_onnxruntime(path, X)[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_an_input_without_a_shape_takes_the_given_one(tmp_path: Path) -> None:
    model = relu()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path := tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match="free dimensions: x"):
        load_network(path)
    np.testing.assert_allclose(run(load_network(path, {"x": [3, 4]}).mod, X), np.maximum(X + 0.5, 0))
