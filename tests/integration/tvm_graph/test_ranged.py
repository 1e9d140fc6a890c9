"""A range of shapes: imported at its points, compiled to one library that takes every size, and exported."""

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import helper
from tvm import relax

from mallorn.core.errors import InvalidModel
from mallorn.workers.tvm.compile.compile_model import compile_model
from mallorn.workers.tvm.network.extract_tasks_of_range import extract_range
from tests.fixtures.onnx_network import saved
from tests.integration.tvm_graph.conftest import Example
from tests.integration.tvm_graph.in_range import InRange
from tests.integration.tvm_graph.test_apply_script import run_script

BOUNDS: Final = {"batch": [1, 5], "length": [2, 9]}


class Ranged(InRange):
    """Two products with free rows in two dimensions, and a result that has lost one of them."""

    bounds = BOUNDS

    @cached_property
    def path(self) -> str:
        rng = np.random.default_rng(0)
        weights = {"v": (16, 32), "w": (32, 16)}
        tensors = {name: rng.standard_normal(shape).astype("float32") for name, shape in weights.items()}
        nodes = [
            helper.make_node("MatMul", ["x", "v"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "w"], ["y"]),
            helper.make_node("ReduceSum", ["x", "axes"], ["z"], keepdims=0),
        ]
        free = ["batch", "length", 16]
        ends = {"x": free}, {"y": free, "z": ["batch"]}
        return saved(self.folder / "ranged.onnx", nodes, *ends, **tensors, axes=np.array([1, 2]))


class Heavy(InRange):
    """A product that is mostly weights."""

    bounds: ClassVar[Any] = {"rows": [1, 64]}
    weights: ClassVar[Any] = np.random.default_rng(0).standard_normal((512, 1024)).astype("float32")

    @cached_property
    def path(self) -> str:
        rows, columns = self.weights.shape
        ends = {"x": ["rows", rows]}, {"y": ["rows", columns]}
        product = helper.make_node("MatMul", ["x", "w"], ["y"])
        return saved(self.folder / "heavy.onnx", [product], *ends, w=self.weights)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Ranged:
    return Ranged("ranged", "tuned", tmp_path_factory.mktemp("ranged"))


def outputs(library: str, value: Any) -> list[Any]:
    machine = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
    return [each.numpy() for each in machine["main"](tvm.runtime.tensor(value))]


def test_every_point_has_tasks_of_its_own_and_smaller_ones_weigh_more(one: Ranged) -> None:
    assert len(one.dynamic.calls) == len(one.dynamic.points) <= 8
    weights = {task.name: task.weight for task in one.tasks}
    named = [name for calls in one.dynamic.calls for name in calls]
    assert set(named) == set(weights)
    smallest, largest = one.dynamic.calls[0], one.dynamic.calls[-1]
    assert min(weights[name] for name in smallest) > max(weights[name] for name in largest)


def test_the_models_own_shapes_are_the_largest(one: Ranged) -> None:
    assert [spec.shape for spec in one.graph.inputs] == [[5, 9, 16]]


def test_one_library_computes_every_size_of_the_range_and_refuses_larger_ones(
    one: Ranged, tmp_path: Path
) -> None:
    library = str(tmp_path / "ranged.so")
    compiled = compile_model(one.path, None, one.target, one.recipe, library, {}, one.dynamic)
    assert compiled.of == len(one.tasks)
    session = onnxruntime.InferenceSession(one.path)
    for batch in range(1, 6):
        for length in range(2, 10):
            x = np.random.default_rng(length).standard_normal((batch, length, 16)).astype("float32")
            for ours, theirs in zip(outputs(library, x), session.run(None, {"x": x}), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match="match_cast"):
        outputs(library, np.zeros((6, 9, 16), "float32"))


def test_the_exported_script_makes_the_same_library_with_stock_tvm(one: Ranged, tmp_path: Path) -> None:
    ours, theirs = str(tmp_path / "ours.so"), str(tmp_path / "theirs.so")
    report = run_script(one.schedules, one.path, "--check", "-o", theirs)
    assert report["workloads_found"] == report["workloads"] == len(one.tasks)
    assert report["relative_error"] < 1e-4
    compile_model(one.path, one.schedules, one.target, one.recipe, ours, {}, one.dynamic)
    x = np.random.default_rng(0).standard_normal((3, 7, 16)).astype("float32")
    assert all(map(np.array_equal, outputs(ours, x), outputs(theirs, x)))


def test_weights_are_not_kept_once_a_point(tmp_path: Path) -> None:
    one = Heavy("heavy", "tuned", tmp_path)
    library = str(tmp_path / "heavy.so")
    compiled = compile_model(one.path, one.schedules, one.target, one.recipe, library, {}, one.dynamic)
    assert compiled.found == compiled.of == len(one.dynamic.points) == 8
    assert compiled.bytes < 3 * Heavy.weights.nbytes  # two layouts at most: vectors of columns, and of rows
    session = onnxruntime.InferenceSession(one.path)
    for rows in (1, 7, 64):
        x = np.random.default_rng(rows).standard_normal((rows, 512)).astype("float32")
        machine = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
        ours = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(ours, session.run(None, {"x": x})[0], rtol=1e-3, atol=1e-3)


REFUSED = {
    "another name": ({"rows": [1, 4]}, "no free dimension 'rows'", "batch, length"),
    "one without a range": ({"batch": [1, 4]}, "no range: length", "--dynamic length=1..64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_the_models_dimensions_is_refused_in_words(one: Ranged, name: str) -> None:
    bounds, said, hint = REFUSED[name]
    with pytest.raises(InvalidModel, match=said) as caught:
        extract_range(one.path, one.target, one.recipe, {}, bounds)
    assert hint in str(caught.value.hint)


def test_a_dimension_that_nothing_may_fill_up_is_refused_unless_every_size_is_tuned(tmp_path: Path) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    path = saved(tmp_path / "model.onnx", [node], {"x": ["n", 16]}, {"y": ["n", 16]})
    some = Example("mlp", "tuned", tmp_path)
    with pytest.raises(InvalidModel, match="dimension 'n' is padded with zeros") as caught:
        extract_range(path, some.target, some.recipe, {}, {"n": [1, 40]})
    assert "--dynamic n=40" in str(caught.value.hint)
    found = extract_range(path, some.target, some.recipe, {}, {"n": [3, 4]}).graph.dynamic
    assert found is not None
    assert found.points == [{"n": 3}, {"n": 4}]
