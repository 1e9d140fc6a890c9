"""Engines hold a model each, answer alike and report their times."""

from pathlib import Path
from typing import Any

import pytest

from mallorn.workers.measure.compare_outputs import compare_models
from mallorn.workers.tvm import engine_child
from mallorn.workers.tvm.compile.compile_model import compile_model
from mallorn.workers.tvm.model_compiler_child import make_inputs


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
