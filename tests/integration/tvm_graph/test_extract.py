"""Real models into tasks."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import onnx
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
from tvm.s_tir import meta_schedule as ms

Get = Callable[..., Any]


def operators(graph: dict[str, Any]) -> Counter[str]:
    weighted: Counter[str] = Counter()
    for task in graph["tasks"]:
        weighted[task["op"]] += task["weight"]
    return weighted


def test_an_mlp_is_its_three_products(example: Get) -> None:
    """Weights are constants: no task transposes them, and bias and activation are fused."""
    graph = example("mlp").graph
    assert operators(graph) == {"matmul": 3}
    assert sorted(task["extents"] for task in graph["tasks"]) == [
        [64, 10, 256],
        [64, 256, 512],
        [64, 512, 784],
    ]
    assert all(task["flops"] >= 2 * 64 * task["extents"][1] * task["extents"][2] for task in graph["tasks"])


def test_residual_network_moves_its_layout_once_in_and_once_out(example: Get) -> None:
    graph = example("resnet18").graph
    assert operators(graph) == {"conv2d": 20, "layout": 2, "pool": 1, "reduce": 1, "matmul": 1}
    assert sum(task["op"] == "conv2d" for task in graph["tasks"]) == 15


def test_depthwise_convolutions_are_told_apart(example: Get) -> None:
    assert operators(example("mobilenetv2").graph)["depthwise_conv2d"] == 17


def test_a_transformer_s_layers_share_their_tasks(example: Get) -> None:
    graph = example("bert-small").graph
    counted = operators(graph)
    assert (counted["layer_norm"], counted["softmax"], counted["batch_matmul"]) == (9, 4, 8)
    assert len(graph["tasks"]) < sum(task["weight"] for task in graph["tasks"]) / 3
    assert len({task["key"] for task in graph["tasks"]}) == len(graph["tasks"])


def test_token_ids_stay_inside_the_vocabulary(example: Get) -> None:
    graph = example("bert-small").graph
    assert graph["input_ranges"] == {"input_ids": [0, 30522]}
    (gather,) = (task for task in graph["tasks"] if task["op"] == "gather")
    assert [0, 30522] in gather["args"]["ranges"].values()


def test_every_step_of_the_recipe_is_accounted_for(example: Get) -> None:
    one = example("mlp")
    steps = one.graph["steps"]
    assert [step["pass"] for step in steps] == [step["pass"] for step in one.recipe["before"]]
    for step, following in zip(steps, steps[1:], strict=False):
        assert (step["functions_after"], step["ops_after"]) == (
            following["functions_before"],
            following["ops_before"],
        )
    assert sum(one.graph["operators_after"].values()) < sum(one.graph["operators_before"].values())


def test_the_key_does_not_depend_on_the_model_around_it(example: Get) -> None:
    """A second import of the same network gives the same keys and interchangeable programs."""
    from workers.tvm.tasks import extract

    one = example("mlp")
    again = extract(one.path, one.target, one.recipe)
    assert [(task["key"], task["tir"]) for task in again["tasks"]] == [
        (task["key"], task["tir"]) for task in one.graph["tasks"]
    ]


@pytest.mark.parametrize("name", ["mlp", "bert-small"])
def test_stock_compile_relax_matches_every_schedule_of_the_plain_recipe(
    name: str, example: Get, capfd: pytest.CaptureFixture[str]
) -> None:
    one = example(name, "plain")
    database = ms.database.JSONDatabase(work_dir=one.schedules)
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})

    def missing(chosen: Any) -> int:
        capfd.readouterr()
        mod = from_onnx(onnx.load(one.path))
        assert isinstance(
            ms.relax_integration.compile_relax(chosen, mod, target, None, enable_warning=True),
            relax.VMExecutable,
        )
        return capfd.readouterr().err.count("Tuning record is not found")

    assert missing(database) == 0
    assert missing(ms.database.MemoryDatabase()) == len(one.graph["tasks"])
