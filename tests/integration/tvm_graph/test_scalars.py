"""Scalars are inputs and results like any other: imported, made up, and run by every engine alike."""

from pathlib import Path

import pytest

from mallorn.core.errors import InvalidModel
from mallorn.workers.measure.compare_outputs import compare_models
from mallorn.workers.tvm import engine_child
from mallorn.workers.tvm.compile.compile_model import compile_default, compile_model
from mallorn.workers.tvm.model_compiler_child import make_inputs
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from tests.fixtures.scalars import NETWORKS, branching
from tests.integration.tvm_graph.conftest import Example
from tests.integration.tvm_graph.test_apply_script import run_script


class Scalars(Example):
    """A network with scalars; `name` is its key."""

    @property
    def path(self) -> str:  # type: ignore[override]
        path = self.folder / "model.onnx"
        path.write_bytes(NETWORKS[self.name]())
        return str(path)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_engine_runs_a_model_with_scalars(name: str, tmp_path: Path) -> None:
    one = Scalars(name, "tuned", tmp_path)
    inputs = str(tmp_path / "inputs.npz")
    make_inputs(one.path, inputs, 0, {}, one.graph.input_ranges)
    tuned, untuned = str(tmp_path / "tuned.so"), str(tmp_path / "untuned.so")
    compile_model(one.path, None, one.target, one.recipe, tuned, {})
    compile_default(one.path, one.target, untuned, {})
    engine_child.load_library(tuned, one.target, inputs)
    ours = saved(tmp_path / "tuned.npz")
    engine_child.load_library(untuned, one.target, inputs)
    assert compare_models(ours, saved(tmp_path / "untuned.npz")) < 1e-4
    engine_child.load_onnxruntime(one.path, inputs, threads=1)
    assert compare_models(ours, saved(tmp_path / "onnxruntime.npz")) < 1e-4


def saved(path: Path) -> str:
    assert engine_child.save_outputs(str(path)) == 1
    return str(path)


def test_the_exported_script_makes_scalars_too(tmp_path: Path) -> None:
    one = Scalars("branching", "tuned", tmp_path)
    report = run_script(one.schedules, one.path, "--check")
    assert report["workloads_found"] == report["workloads"] == len(one.tasks)
    assert report["relative_error"] < 1e-4


def test_branches_of_different_shapes_are_refused_before_anything_is_tuned(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(branching(rows_otherwise=2))
    with pytest.raises(InvalidModel, match="the shape of 'y' depends on the data") as refusal:
        load_network(path)
    assert refusal.value.hint
