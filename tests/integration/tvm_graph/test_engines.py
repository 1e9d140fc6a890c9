"""Engines hold a model each, answer alike and report their times."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn.workers.measure.compare_outputs import compare_models
from mallorn.workers.subprocesses.errors import ChildFailed
from mallorn.workers.tvm import engine_child
from mallorn.workers.tvm.compile.compile_model import compile_model
from mallorn.workers.tvm.model_compiler_child import make_inputs
from mallorn.workers.tvm.network.graph_recipes import recipe_for
from tests.integration.tvm_graph.conftest import TARGET
from tests.unit.graphc.networks import network


@pytest.fixture(scope="module")
def prepared(example: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str, str]:
    """A model, its library and its inputs."""
    one = example("mlp")
    folder = tmp_path_factory.mktemp("engines")
    library, inputs = str(folder / "model.so"), str(folder / "inputs.npz")
    compile_model(one.path, one.schedules, one.target, one.recipe, library, {})
    assert make_inputs(one.path, inputs, 3, {}, {}) == ["input"]
    return one, library, inputs


def test_engines_agree(prepared: tuple[Any, str, str], tmp_path: Path) -> None:
    one, library, inputs = prepared
    assert engine_child.load_library(library, one.target, inputs).engine == "tvm"
    assert engine_child.save_outputs(str(tmp_path / "tvm.npz")) == 1
    assert engine_child.load_onnxruntime(one.path, inputs, threads=1).engine == "onnxruntime"
    assert engine_child.save_outputs(str(tmp_path / "ort.npz")) == 1
    assert compare_models(str(tmp_path / "tvm.npz"), str(tmp_path / "ort.npz")) < 1e-4


def test_a_burst_gives_one_time(prepared: tuple[Any, str, str]) -> None:
    one, library, inputs = prepared
    engine_child.load_library(library, one.target, inputs)
    times_us = engine_child.time_bursts(bursts=3, number=2)
    assert len(times_us) == 3
    assert all(time_us > 0 for time_us in times_us)


def test_kernels_go_by_the_names_of_their_tasks(prepared: tuple[Any, str, str]) -> None:
    one, library, inputs = prepared
    engine_child.load_library(library, one.target, inputs)
    times_us = engine_child.time_kernels(seconds=0.1)
    assert set(times_us) == {task.name for task in one.tasks}
    assert all(time_us > 0 for time_us in times_us.values())


def test_watching_kernels_leaves_the_answers_alone(prepared: tuple[Any, str, str], tmp_path: Path) -> None:
    one, library, inputs = prepared
    engine_child.load_library(library, one.target, inputs)
    engine_child.save_outputs(str(tmp_path / "before.npz"))
    engine_child.time_kernels(seconds=0.1)
    engine_child.save_outputs(str(tmp_path / "after.npz"))
    assert compare_models(str(tmp_path / "after.npz"), str(tmp_path / "before.npz")) == 0


@pytest.mark.usefixtures("executed_children")
@pytest.mark.parametrize("recipe", ["tuned", "plain"])
def test_a_library_that_sorts_runs_with_the_runtime_alone(recipe: str, tmp_path: Path) -> None:
    """As programs with `mallorn_runtime` call it: TVM's functions that sort are elsewhere."""
    tensors = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 9000]),
        helper.make_tensor_value_info("values", TensorProto.FLOAT, [2, 300]),
        helper.make_tensor_value_info("places", TensorProto.INT64, [2, 300]),
    ]
    node = helper.make_node("TopK", ["x", "k"], ["values", "places"])
    k = helper.make_tensor("k", TensorProto.INT64, [1], [300])
    graph = helper.make_graph([node], "detector", tensors[:1], tensors[1:], [k])
    path, library, inputs = (str(tmp_path / name) for name in ("model.onnx", "model.so", "inputs.npz"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    compile_model(path, None, TARGET.text, recipe_for(recipe, TARGET, "float32"), library, {})
    make_inputs(path, inputs, 0, {}, {})
    with Engine(env={}, name="runtime") as engine:
        assert engine.run_alone(library, [inputs], str(tmp_path / "alone.npz")) == 2
    engine_child.load_onnxruntime(path, inputs, threads=1)
    engine_child.save_outputs(str(tmp_path / "ort.npz"))
    with np.load(tmp_path / "alone.npz") as ours, np.load(tmp_path / "ort.npz") as theirs:
        assert all((ours[name] == theirs[name]).all() for name in theirs.files)


@pytest.mark.usefixtures("executed_children")
def test_a_library_that_needs_more_than_the_runtime_is_refused(tmp_path: Path) -> None:
    """The compiled module calls a function that only TVM's full wheel has."""
    library, inputs = str(tmp_path / "model.so"), str(tmp_path / "inputs.npz")
    mod = network(lambda _, x: relax.op.sort(x), (2, 300))
    target = tvm.target.Target(TARGET.text)
    with target:
        executable = tvm.compile(relax.backend.DispatchSortScan()(mod), target)
    executable.export_library(library)
    np.savez(inputs, x=np.zeros((2, 300), "float32"))
    with Engine(env={}, name="runtime") as engine, pytest.raises(ChildFailed, match=r"contrib\.sort\.sort"):
        engine.run_alone(library, [inputs], str(tmp_path / "alone.npz"))
