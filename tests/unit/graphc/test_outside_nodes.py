"""When an import fails, every node that is in its way is found, not only the first."""

import numpy as np
from onnx import helper

from mallorn.workers.tvm.network.outside_nodes import describe_outside_nodes, find_outside_nodes
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from tests.fixtures.onnx_network import onnx_network

TARGET = as_tvm_target('{"kind":"llvm","mcpu":"haswell","num-cores":2}')
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
    outside, count = find_outside_nodes(model, {}, TARGET)
    assert count == 4
    assert {each.node.op_type for each in outside} == {"NonZero", "MelWeightMatrix"}
    assert all(each.reason for each in outside)


def test_a_graph_that_comes_in_has_none() -> None:
    model = onnx_network([node("Relu", ["x"], ["y"])], {"x": ("n", 3)}, {"y": None})
    outside, count = find_outside_nodes(model, {"x": [2, 3]}, TARGET)
    assert (outside, count) == ([], 1)
    assert describe_outside_nodes(outside, count) == ""


def test_the_sentence_counts_by_operator_and_ends_after_six() -> None:
    nodes = [node(name, ["x"], [f"{name}{index}"]) for index, name in enumerate("ABBCDEFG")]
    model = onnx_network(nodes, {"x": ("n",)}, {each.output[0]: None for each in nodes})
    outside, count = find_outside_nodes(model, {}, TARGET)
    assert describe_outside_nodes(outside, count) == (
        "8 of 8 nodes cannot be imported: 2 B, 1 A, 1 C, 1 D, 1 E, 1 F, others"
    )
