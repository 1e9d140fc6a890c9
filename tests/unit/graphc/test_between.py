"""Whether a model's dimensions may be filled up, or divided."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from onnx import NodeProto, helper

from mallorn.workers.tvm.network.extract_tasks_of_range import find_paddable_and_splittable
from tests.fixtures.onnx_network import saved
from tests.unit.graphc.networks import random

pytest.importorskip("onnxruntime")


def model(folder: Path, *nodes: NodeProto, **inputs: Sequence[str | int]) -> str:
    return saved(folder / "model.onnx", nodes, inputs, {"y": ["n", 8]}, w=random(8, 8))


def look(path: str, **inputs: list[str | int]) -> tuple[list[str], list[str]]:
    return find_paddable_and_splittable(path, inputs, dict.fromkeys(inputs, "float32"), {"n": [2, 30]})


def test_rows_that_nothing_joins_are_filled_up_and_divided(tmp_path: Path) -> None:
    path = model(tmp_path, helper.make_node("MatMul", ["x", "w"], ["y"]), x=["n", 8])
    assert look(path, x=["n", 8]) == (["n"], ["n"])


def test_rows_that_are_normed_together_are_neither(tmp_path: Path) -> None:
    path = model(tmp_path, helper.make_node("Softmax", ["x"], ["y"], axis=0), x=["n", 8])
    assert look(path, x=["n", 8]) == ([], [])


def test_what_a_mask_hides_is_filled_up_and_not_divided(tmp_path: Path) -> None:
    """A sum over the dimension, of what the mask lets through."""
    nodes = [
        helper.make_node("Mul", ["x", "mask"], ["h"]),
        helper.make_node("ReduceMean", ["h"], ["m"], axes=[0], keepdims=1),
        helper.make_node("ReduceMean", ["mask"], ["c"], axes=[0], keepdims=1),
        helper.make_node("Div", ["m", "c"], ["d"]),
        helper.make_node("Mul", ["h", "d"], ["y"]),
    ]
    path = model(tmp_path, *nodes, x=["n", 8], mask=["n", 1])
    assert look(path, x=["n", 8], mask=["n", 1]) == (["n"], [])


def test_a_model_that_runs_at_one_size_alone_is_not_filled_up(tmp_path: Path) -> None:
    path = model(tmp_path, helper.make_node("Add", ["x", "w"], ["y"]), x=["n", 8])
    assert look(path, x=["n", 8]) == ([], [])


def test_a_dimension_of_one_size_is_not_asked_about(tmp_path: Path) -> None:
    assert find_paddable_and_splittable(str(tmp_path / "missing.onnx"), {}, {}, {"n": [4, 4]}) == ([], [])
