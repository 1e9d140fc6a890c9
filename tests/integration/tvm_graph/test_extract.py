"""Real models into tasks."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm.relax.frontend.onnx import from_onnx
from tvm.s_tir import meta_schedule as ms

from mallorn.workers.interfaces.model_compiler import Extraction
from mallorn.workers.tvm.network.extract_tasks import extract
from mallorn.workers.tvm.network.graph_recipes import TUNED
from tests.fixtures.onnx_network import saved

TARGET = '{"kind":"llvm","num-cores":2}'
Get = Callable[..., Any]
LIMITS = {"low": -0.5, "high": 0.5}


def operators(found: Extraction) -> Counter[str]:
    weighted: Counter[str] = Counter()
    for task in found.tasks:
        weighted[task.op] += task.weight
    return weighted


def square(path: Path, nodes: list[onnx.NodeProto], **scalars: Any) -> str:
    """A model of these nodes from `x` to `y`, with a convolution's weights `w`."""
    shape = (1, 4, 8, 8)
    return saved(path, nodes, {"x": shape}, {"y": shape}, w=np.ones((4, 4, 3, 3), "float32"), **scalars)


def test_an_mlp_is_its_three_products(example: Get) -> None:
    """Weights are constants: no task transposes them, and bias and activation are fused."""
    found = example("mlp").extracted
    assert operators(found) == {"matmul": 3}
    sizes = sorted(task.extents for task in found.tasks)
    assert sizes == [(64, 12, 256), (64, 256, 512), (64, 512, 784)]  # ten outputs fill vectors of four
    assert all(task.flops >= 2 * 64 * task.extents[1] * task.extents[2] for task in found.tasks)


def test_residual_network_moves_its_layout_once_in_and_once_out(example: Get) -> None:
    found = example("resnet18").extracted
    others = {"layout": 2, "pool": 1, "reduce": 1, "matmul": 1}
    # All of three by three with stride one are Winograd's: data padded and packed, products, and unpacked.
    assert operators(found) == {"conv2d": 7, "batch_matmul": 13, "elementwise": 44, **others}
    assert operators(example("resnet18", "direct").extracted) == {"conv2d": 20, **others}


@pytest.mark.slow
@pytest.mark.long
def test_depthwise_convolutions_are_told_apart_and_joined_with_the_one_before(example: Get) -> None:
    found = operators(example("mobilenetv2").extracted)
    others = {"layout": 2, "reduce": 1, "matmul": 1}
    assert found == {"conv2d": 19, "matmul-depthwise_conv2d": 16, "depthwise_conv2d": 1, **others}


@pytest.mark.parametrize("bounds", [("low", "high"), ("low",), ("", "high")])
def test_a_bounded_activation_is_part_of_its_convolution(tmp_path: Path, bounds: tuple[str, ...]) -> None:
    """The importer makes Clip a tensor function: no layout gets past it unless it is an operator again."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c", *bounds], ["d"]),
        helper.make_node("Conv", ["d", "w"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    scalars = {name: np.array(limit, "float32") for name, limit in LIMITS.items()}
    found = extract(square(tmp_path / "clip.onnx", nodes, **scalars), TARGET, TUNED, {})
    assert operators(found) == {"conv2d": 2, "layout": 2}


def test_a_transformer_s_layers_share_their_tasks(example: Get) -> None:
    found = example("bert-small").extracted
    counted = operators(found)
    assert (counted["layer_norm"], counted["softmax"], counted["batch_matmul"]) == (9, 4, 8)
    assert len(found.tasks) < sum(task.weight for task in found.tasks) / 3
    assert len({task.key for task in found.tasks}) == len(found.tasks)


def test_token_ids_stay_inside_the_vocabulary(example: Get) -> None:
    found = example("bert-small").extracted
    assert found.graph.input_ranges == {"input_ids": [0, 30522]}
    (gather,) = (task for task in found.tasks if task.op == "gather")
    assert (0, 30522) in gather.args.ranges.values()


def test_a_maximum_with_a_number_stops_no_change_of_layout(tmp_path: Path) -> None:
    """Stacking five dimensions, as TVM's importer does for it, makes ConvertLayout fail."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Max", ["c", "lowest"], ["y"]),
    ]
    path = square(tmp_path / "stack.onnx", nodes, lowest=np.zeros((), "float32"))
    found = extract(path, TARGET, TUNED, {})
    assert not any(step.skip_reason for step in found.graph.steps)
    assert operators(found)["conv2d"] == 1


def test_what_calls_a_library_is_no_task(tmp_path: Path) -> None:
    results = {"best": [4, 3], "places": np.zeros((4, 3), "int64")}
    nodes = [
        helper.make_node("Exp", ["x"], ["powers"]),
        helper.make_node("TopK", ["powers", "three"], ["best", "places"]),
    ]
    saved(tmp_path / "m", nodes, {"x": [4, 32]}, results, three=np.array([3]))
    (task,) = extract(str(tmp_path / "m"), TARGET, TUNED, {}).tasks
    assert task.op == "elementwise"


def test_every_step_of_the_recipe_is_accounted_for(example: Get) -> None:
    one = example("mlp")
    steps = one.graph.steps
    assert [step.name for step in steps] == [step.name for step in one.recipe.before]
    for step, following in pairwise(steps):
        assert step.functions_after == following.functions_before
        assert step.ops_after == following.ops_before
    assert sum(one.graph.operators_after.values()) < sum(one.graph.operators_before.values())


def test_the_key_does_not_depend_on_the_model_around_it(example: Get) -> None:
    """A second import of the same network gives the same keys and interchangeable programs."""
    one = example("mlp")
    again = extract(one.path, one.target, one.recipe, {})
    assert [(task.key, task.tir) for task in again.tasks] == [(task.key, task.tir) for task in one.tasks]


@pytest.mark.parametrize("name", ["mlp", "bert-small"])
def test_stock_compile_relax_matches_every_schedule_of_the_plain_recipe(
    name: str, example: Get, capfd: pytest.CaptureFixture[str]
) -> None:
    one = example(name, "plain")
    database = ms.database.JSONDatabase(work_dir=one.schedules)
    target = tvm.target.Target(json.loads(TARGET))

    def missing(chosen: Any) -> int:
        capfd.readouterr()
        mod = from_onnx(onnx.load(one.path))
        ms.relax_integration.compile_relax(chosen, mod, target, None, enable_warning=True)
        return capfd.readouterr().err.count("Tuning record is not found")

    assert missing(database) == 0
    assert missing(ms.database.MemoryDatabase()) == len(one.tasks)
