"""Lists of tensors, as exporters write Python's, become plain operators; their results are the same."""

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from tests.unit.graphc.test_fold_shapes import info, model, node, simple

LISTS: dict[str, list[NodeProto]] = {
    "joined": [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceInsert", ["s", "x", "first"], ["t"]),
        node("ConcatFromSequence", ["t"], ["y"], axis=1),
    ],
    "stacked": [
        node("SequenceEmpty", [], ["s"]),
        node("SequenceInsert", ["s", "x"], ["t"]),
        node("SequenceInsert", ["t", "x"], ["u"]),
        node("ConcatFromSequence", ["u"], ["y"], axis=0, new_axis=1),
    ],
    "split into pieces": [
        node("SplitToSequence", ["x", "pieces"], ["s"], axis=2),
        node("SequenceErase", ["s", "first"], ["t"]),
        node("SequenceAt", ["t", "last"], ["y"]),
    ],
    "split by ones": [
        node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0),
        node("Identity", ["s"], ["t"]),
        node("SequenceAt", ["t", "last"], ["y"]),
    ],
    "split by a number": [
        node("SplitToSequence", ["x", "two"], ["s"], axis=1),
        node("SequenceAt", ["s", "last"], ["y"]),
    ],
    "counted": [
        node("SplitToSequence", ["x"], ["s"], axis=2),
        node("SequenceLength", ["s"], ["n"]),
        node("Cast", ["n"], ["m"], to=TensorProto.FLOAT),
        node("Mul", ["x", "m"], ["y"]),
    ],
}
PLACES = {"first": np.int64(0), "last": np.int64(-1), "two": np.int64(2), "pieces": np.array([1, 3])}


def operators(found: Any) -> set[str]:
    return {each.op_type for each in found.graph.node}


@pytest.mark.parametrize("nodes", LISTS.values(), ids=LISTS)
def test_a_list_becomes_plain_operators(nodes: list[NodeProto]) -> None:
    assert not any("Sequence" in each for each in operators(simple(model(nodes, weights=PLACES))))


def test_a_new_axis_is_written_as_the_files_version_has_it() -> None:
    assert operators(simple(model(LISTS["stacked"], opset=11))) == {"Unsqueeze", "Concat"}


def test_what_a_loop_appends_is_joined_behind_it() -> None:
    body = helper.make_graph(
        [
            node("Add", ["x", "x"], ["z"]),
            node("SequenceInsert", ["s", "z"], ["t"]),
            node("Identity", ["go"], ["on"]),
        ],
        "body",
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), _list("s")],
        [info("on", [], TensorProto.BOOL), _list("t")],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["steps", "", "none"], ["all"], body=body),
        node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1),
    ]
    found = simple(model(nodes, weights={"steps": np.int64(3)}))
    assert operators(found) == {"Add", "Unsqueeze", "Concat"}


def test_a_list_that_the_data_indexes_stays_one() -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Cast", ["most"], ["at"], to=TensorProto.INT64),
        node("SequenceAt", ["s", "at"], ["y"]),
    ]
    assert "SequenceConstruct" in operators(simple(model(nodes)))


def _list(name: str) -> Any:
    return helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
