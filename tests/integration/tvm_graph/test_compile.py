"""A model with its schedules becomes one library with the right numbers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.database import JSONDatabase

from mallorn.core.values.manifest import RECORDS
from mallorn.graphc.export import compile_network
from mallorn.graphc.export.output_errors import relative_error
from mallorn.workers.tvm.compile.compile_model import compile_default, compile_model
from mallorn.workers.tvm.network.graph_recipes import TUNED, recipe_steps
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target, run_steps

Get = Callable[..., Any]
CLOSE = 1e-4


def answers(library: str, inputs: dict[str, Any]) -> list[Any]:
    main = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())["main"]
    result = main(*(tvm.runtime.tensor(value) for value in inputs.values()))
    return [output.numpy() for output in ([result] if hasattr(result, "numpy") else result)]


def error_of(one: Any, library: str) -> float:
    """The library's worst error against onnxruntime on one set of random inputs."""
    inputs = compile_network.random_inputs(onnx.load(one.path), {}, one.graph.input_ranges)
    session = onnxruntime.InferenceSession(one.path, providers=["CPUExecutionProvider"])
    pairs = zip(answers(library, inputs), session.run(None, inputs), strict=True)
    return max(relative_error(ours, theirs) for ours, theirs in pairs)


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("mlp", "tuned"),
        ("mlp", "plain"),
        pytest.param("bert-small", "tuned", marks=pytest.mark.long),
        pytest.param("resnet18", "tuned", marks=pytest.mark.long),
    ],
)
def test_every_schedule_is_found_and_the_numbers_are_onnxruntime_s(
    name: str, recipe: str, example: Get, tmp_path: Path
) -> None:
    one = example(name, recipe)
    library = str(tmp_path / "model.so")
    report = compile_model(one.path, one.schedules, one.target, one.recipe, library, {})
    assert (report.found, report.missing) == (report.of, [])
    assert report.of == len(one.tasks)
    assert error_of(one, library) < CLOSE


def test_a_missing_schedule_is_named_and_the_numbers_stay_right(mlp: Any, tmp_path: Path) -> None:
    schedules = shutil.copytree(mlp.schedules, tmp_path / "torn")
    records = schedules / RECORDS
    records.write_text(records.read_text()[:-100])
    library = str(tmp_path / "model.so")
    report = compile_model(mlp.path, str(schedules), mlp.target, mlp.recipe, library, {})
    assert (report.found, report.of, len(report.missing)) == (2, 3, 1)
    assert [problem.line for problem in report.problems] == [3]
    assert error_of(mlp, library) < CLOSE


def test_schedules_of_another_recipe_match_nothing_and_that_is_counted(mlp: Any, tmp_path: Path) -> None:
    without = [step for step in mlp.recipe.before if "LayoutFree" not in step.name]
    other = mlp.recipe.model_copy(update={"before": without})
    report = compile_model(mlp.path, mlp.schedules, mlp.target, other, str(tmp_path / "model.so"), {})
    assert (report.found, report.of) == (0, 3)


def test_weights_are_laid_out_anew_at_compile_time(mlp: Any) -> None:
    """After the recipe's second half only the scheduled products run, and weights have new shapes."""
    target = as_tvm_target(mlp.target)
    mod, _ = run_steps(load_network(mlp.path).mod, recipe_steps(TUNED)["before"], target)
    assert len(JSONDatabase(work_dir=mlp.schedules)) == 3
    with target, tvm.transform.PassContext(opt_level=3):
        mod = relax.transform.MetaScheduleApplyDatabase(mlp.schedules)(mod)
    before = weight_ranks(mod)
    mod, report = run_steps(mod, recipe_steps(TUNED)["after"], target)
    assert before == {2}
    assert max(weight_ranks(mod)) > 2
    assert report[-1].ops_after == 3


def weight_ranks(mod: Any) -> set[int]:
    found: set[int] = set()

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst) and len(node.ty.shape) > 1:
            found.add(len(node.ty.shape))

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def test_tvm_s_own_build_is_right_too(mlp: Any, tmp_path: Path) -> None:
    library = str(tmp_path / "default.so")
    assert compile_default(mlp.path, mlp.target, library, {}).bytes > 0
    assert error_of(mlp, library) < CLOSE


def test_free_dimensions_are_bound_alike_on_import_and_compile(mlp: Any, tmp_path: Path) -> None:
    model = onnx.load(mlp.path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    path, library = str(tmp_path / "free.onnx"), str(tmp_path / "free.so")
    onnx.save(model, path)
    report = compile_model(path, mlp.schedules, mlp.target, mlp.recipe, library, {"input": [64, 784]})
    assert report.found == report.of == 3
    assert answers(library, {"input": np.ones((64, 784), "float32")})[0].shape == (64, 10)
