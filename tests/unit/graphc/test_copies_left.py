"""What an import leaves that only moves data, and who asks for it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper

from mallorn.core.values.graph_report import RemainingCopy
from mallorn.workers.tvm.model_compiler_child import report_passes
from tests.fixtures.onnx_network import Shapes, saved
from tests.unit.graphc.networks import HASWELL, random

Found = list[tuple[str, str, int]]


@pytest.fixture
def left(tmp_path: Path) -> Any:
    """The kinds of copies in a network from x to y, with who asks and how often."""

    def find(nodes: list[NodeProto], inputs: Shapes, output: list[int], **weights: Any) -> Found:
        model = saved(tmp_path / "network.onnx", nodes, inputs, {"y": output}, **weights)
        copies: list[RemainingCopy] = report_passes(model, HASWELL, "tuned", {}, [], None).copies
        return [(copy.kind, copy.required_by, copy.calls) for copy in copies]

    return find


def node(operator: str, *inputs: str, result: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs, [result], **attributes)


def test_inputs_and_outputs_ask_for_transposes_around_convolutions(left: Any) -> None:
    nodes = [node("Conv", "x", "w", result="a"), node("Relu", "a")]
    found = left(nodes, {"x": [1, 3, 8, 8]}, [1, 16, 8, 8], w=random(16, 3, 1, 1))
    assert found == [("transpose", "the input", 1), ("transpose", "the output", 1)]


def test_what_knows_one_layout_between_convolutions_asks_on_both_sides(left: Any) -> None:
    nodes = [
        node("Conv", "x", "w", result="a"),
        node("CumSum", "a", "axis", result="b"),
        node("Conv", "b", "v", result="c"),
        node("GlobalAveragePool", "c"),
    ]
    weights = {"w": random(16, 3, 1, 1), "v": random(16, 16, 1, 1), "axis": np.array([1])}
    found = left(nodes, {"x": [1, 3, 8, 8]}, [1, 16, 1, 1], **weights)
    assert found.count(("transpose", "cumulative_sum", 1)) == 2


def test_the_networks_own_transpose_is_asked_for_by_its_reader(left: Any) -> None:
    nodes = [
        node("MatMul", "x", "w", result="a"),
        node("Softmax", "a", result="b"),
        node("Transpose", "b", result="c", perm=[1, 0]),
        node("Softmax", "c"),
    ]
    assert left(nodes, {"x": [8, 8]}, [8, 8], w=random(8, 8)) == [("transpose", "softmax", 1)]


@pytest.mark.parametrize(
    ("kind", "made", "size"),
    [
        ("concatenation", node("Concat", "a", "x", axis=1), 16),
        ("pad", node("Pad", "a", "bounds"), 12),
        ("slice", node("Slice", "a", "starts", "ends"), 4),
        ("copy", node("Tile", "a", "times"), 16),
        ("transpose", node("Transpose", "a", perm=[1, 0]), 8),
    ],
)
def test_copies_are_told_apart(left: Any, kind: str, made: NodeProto, size: int) -> None:
    integers = {"bounds": [0, 2, 0, 2], "starts": [0, 2], "ends": [8, 6], "times": [1, 2]}
    weights = {name: np.array(values) for name, values in integers.items() if name in made.input}
    found = left([node("Softmax", "x", result="a"), made], {"x": [8, 8]}, [8, size], **weights)
    assert found == [(kind, "the output", 1)]


@pytest.mark.parametrize(
    "nodes",
    [
        [node("MatMul", "x", "w", result="a"), node("Relu", "a")],
        [node("Softmax", "x", result="a"), node("Reshape", "a", "shape", result="b"), node("Softmax", "b")],
        [node("ArgMax", "x", result="a", keepdims=0), node("Gather", "w", "a")],
        [node("Greater", "x", "w", result="a"), node("Where", "a", "x", "w")],
    ],
    ids=["products", "views", "look-ups", "choices"],
)
def test_what_computes_looks_up_or_moves_nothing_is_no_copy(left: Any, nodes: list[NodeProto]) -> None:
    assert left(nodes, {"x": [8, 8]}, [64], w=random(8, 8), shape=np.array([64])) == []
