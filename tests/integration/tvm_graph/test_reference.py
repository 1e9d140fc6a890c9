"""The numeric check of candidates against the unscheduled program."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import from_source

from mallorn.workers.measure.compare_outputs import compare_outputs
from mallorn.workers.tvm.compile.reference_outputs import build_whole_program, float_range, write_reference
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module
from tests.fixtures.kernel_libraries import call, run_here

Get = Callable[..., Any]


def built(tir: str, trace: str, target: str, folder: Path) -> str:
    library = str(folder / "c.so")
    build_whole_program(tir, trace, target, library)
    return library


def task_of(one: Any, op: str) -> tuple[dict[str, Any], str]:
    index = next(i for i, task in enumerate(one.tasks) if task.op == op)
    return one.tasks[index], one.records[index].trace


def check(task: dict[str, Any], library: str, folder: Path, spoil: float = 0.0) -> dict[str, Any]:
    inputs, expected, ours = (str(folder / f"{name}.npz") for name in ("inputs", "expected", "ours"))
    terms = write_reference(task.tir, task.args, 7, inputs, expected, run_here)
    with np.load(inputs) as archive:
        arrays = [archive[name] for name in archive.files]
    results = call(library, arrays)
    results[terms.outputs[0]].flat[0] += spoil
    np.savez(ours, **{f"arg_{index}": array for index, array in enumerate(results)})
    return compare_outputs(ours, expected, terms)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("mlp", "matmul"),
        ("bert-small", "softmax"),
        ("bert-small", "layer_norm"),
        ("bert-small", "gather"),
        ("resnet18", "conv2d"),
        ("resnet18", "pool"),
    ],
)
def test_a_right_schedule_passes(name: str, op: str, example: Get, tmp_path: Path) -> None:
    one = example(name)
    task, trace = task_of(one, op)
    verdict = check(task, built(task.tir, trace, one.target, tmp_path), tmp_path)
    assert verdict.ok, verdict


def test_one_wrong_element_fails(mlp: Any, tmp_path: Path) -> None:
    task, trace = task_of(mlp, "matmul")
    library = built(task.tir, trace, mlp.target, tmp_path)
    verdict = check(task, library, tmp_path, spoil=0.05)
    assert not verdict.ok
    assert verdict.max_error > verdict.tolerance


def test_another_program_s_answers_fail(mlp: Any, tmp_path: Path) -> None:
    """The same product without its activation differs where the sum is negative."""
    index = next(i for i, task in enumerate(mlp.tasks) if "relu" in task.name)
    task, trace = mlp.tasks[index], mlp.records[index].trace
    text = parse_module(task.tir).script()
    open_ended = from_source(text.replace("T.float32(0.0))", "T.float32(-1000.0))"))
    assert open_ended.script() != text
    library = built(tvm.ir.save_json(open_ended), trace, mlp.target, tmp_path)
    assert not check(task, library, tmp_path).ok


def test_inputs_repeat_with_the_seed(mlp: Any, tmp_path: Path) -> None:
    task, _ = task_of(mlp, "matmul")
    for name in ("a", "b"):
        write_reference(
            task.tir, task.args, 7, str(tmp_path / f"{name}.npz"), str(tmp_path / "e.npz"), run_here
        )
    with np.load(tmp_path / "a.npz") as first, np.load(tmp_path / "b.npz") as second:
        assert all(np.array_equal(first[name], second[name], equal_nan=True) for name in first.files)


def test_only_delicate_programs_are_spared_negative_inputs(example: Get) -> None:
    task, _ = task_of(example("bert-small"), "layer_norm")
    assert float_range(parse_module(task.tir)) == (0.1, 1.0)
    task, _ = task_of(example("mlp"), "matmul")
    assert float_range(parse_module(task.tir)) == (-1.0, 1.0)
