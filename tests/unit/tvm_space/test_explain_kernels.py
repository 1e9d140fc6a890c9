"""What holds kernels back whatever their tiles are, and that others are said to have nothing of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper
from tvm.script import from_source

from mallorn.core.targets import parse_target
from mallorn.workers.tvm.compile.explain_kernels import explain, explain_kernels, library_calls
from mallorn.workers.tvm.network.graph_recipes import recipe_for
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.records.tuning_database import write_database
from tests.fixtures.onnx_network import saved
from tests.unit.graphc.networks import HASWELL, random

Explained = Callable[..., list[list[str]]]
SUM = """
@T.prim_func(s_tir=True)
def main(
    table: T.Buffer((64, 64), "float32"), rows: T.Buffer((64,), "int64"), y: T.Buffer((64, 64), "float32")
):
    for i, j in T.grid(64, 64):
        with T.sblock("y"):
            a, b = T.axis.remap("SS", [i, j])
            y[a, b] = LOADED + T.float32(1)
"""


@pytest.fixture
def explained(tmp_path: Path) -> Explained:
    """What holds back each kernel of a network from x to y without schedules."""

    def find(nodes: Sequence[NodeProto], recipe: str, **weights: Any) -> list[list[str]]:
        sizes = {"x": [64, 64]}, {"y": [64, 64]}
        model = saved(tmp_path / "network.onnx", nodes, *sizes, **weights)
        write_database(str(tmp_path / "none"), HASWELL, [])
        stored = recipe_for(recipe, parse_target(HASWELL))
        return list(explain_kernels(model, str(tmp_path / "none"), HASWELL, stored, {}, None).values())

    return find


def test_calls_of_the_c_library_are_named(explained: Explained) -> None:
    assert explained([helper.make_node("Sin", ["x"], ["y"])], "plain") == [["scalar calls: sinf"]]
    assert explained([helper.make_node("Sin", ["x"], ["y"])], "tuned") == [[]]


def test_a_product_without_a_schedule_reads_columns_of_its_weights(explained: Explained) -> None:
    product = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    assert explained(product, "tuned", w=random(64, 64)) == [["strided loads of weight"]]


def test_of_two_inputs_the_transposed_one_is_read_in_steps(explained: Explained) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0]),
        helper.make_node("Sub", ["turned", "x"], ["y"]),
    ]
    assert ["strided loads of input"] in explained(nodes, "plain")


def test_what_is_read_in_order_has_nothing_that_holds_it_back(explained: Explained) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Add", ["a", "w"], ["y"])]
    assert explained(nodes, "plain", w=np.ones((64, 64), "float32")) == [[]]


@pytest.mark.parametrize(
    ("loaded", "reasons"),
    [
        ("table[a, b]", []),
        ("table[a, 0]", []),
        ("table[a, 63 - b]", []),
        ("table[a, b // 2]", []),
        ("table[rows[a], b]", []),
        ("table[b, a]", ["strided loads of input"]),
        ("table[a, b * 2 % 64]", ["strided loads of input"]),
        ("table[rows[b], a]", ["strided loads of input"]),
    ],
)
def test_loads_are_judged_along_the_innermost_loop(loaded: str, reasons: list[str]) -> None:
    kernel = from_source(SUM.replace("LOADED", loaded))
    assert explain(kernel, as_tvm_target(HASWELL), ()) == reasons


def test_jumps_inside_a_function_and_through_registers_call_no_library() -> None:
    arm64 = (
        "\t.type\tmain_compute_,@function\nmain_compute_:\n\tldr\tq0, [x1]\n"
        ".LBB0_1:\n\tblr\tx8\n\tbl\texpf\n\tbl\tmemcpy\n\tb\t.LBB0_1\n"
    )
    assert library_calls("llvm", arm64) == ["expf"]
