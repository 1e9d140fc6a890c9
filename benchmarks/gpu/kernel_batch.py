"""Write the prepared kernels as a batch, which run_batch.py's code checks and times."""

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.gpu.kernel_index import Kernel, kernels_below
from benchmarks.gpu.tasks import (
    BATCH,
    BY_NAME,
    CONVOLUTION,
    DEPTHWISE,
    LARGEST_ERROR,
    NORM,
    PRODUCT,
    Task,
    shapes,
)
from mallorn.core.job_options import EvaluatorOptions, JobOptions
from mallorn.core.targets import Target
from mallorn.workers.detached import run_batch
from mallorn.workers.detached.pack_batch import (
    CHECKED_FLOATS,
    make_timing_call,
    pack_expected_outputs,
    target_requirements,
)
from mallorn.workers.device.random_and_saved_arrays import draw_arguments
from mallorn.workers.interfaces.tensor_arguments import FREE_RANGE, Arguments, Tensor
from mallorn.workers.tvm.code_digest import TVM_VERSION

NAME: Final = "gpu-minutes"
SEED: Final = 1
# Racing measures slow kernels only roughly.
OPTIONS: Final = JobOptions(
    evaluator=EvaluatorOptions(number=1, repeat=5, min_repeat_ms=5), stopping="racing"
)
TIMEOUT_SEC: Final = 20.0
MOST_VALUES: Final = 4096  # values of a result that are compared
_EPSILON: Final = 1e-5


def write_batch(kernels: Path, target: Target) -> None:
    """Write the manifest of a batch of all built kernels, and their tasks' right results."""
    order = in_rounds(list(kernels_below(kernels)))
    about = {task: call_of(BY_NAME[task], kernels, target) for task in {each.task for each in order}}
    calls = [
        {**about[each.task], "key": each.cell, "library": each.file, "task": each.task, "means": each.means}
        for each in order
    ]
    files = {*(each.file for each in order), *(call["check"]["expected"] for call in calls)}
    manifest = {
        "format": run_batch.FORMAT,
        "batch": NAME,
        "tvm": TVM_VERSION,
        "needs": target_requirements(target),
        "like": None,
        "files": {name: sha256((kernels / name).read_bytes()).hexdigest() for name in sorted(files)},
        "calls": calls,
    }
    (kernels / run_batch.MANIFEST).write_text(json.dumps(manifest))


def in_rounds(kernels: Sequence[Kernel], batch: int = 6) -> list[Kernel]:
    """Order kernels so that tasks take turns of `batch` kernels, which share arrays."""
    places: dict[str, int] = {}
    rounds: list[tuple[int, int, Kernel]] = []
    tasks = list(dict.fromkeys(kernel.task for kernel in kernels))
    for kernel in kernels:
        place = places[kernel.task] = places.get(kernel.task, -1) + 1
        rounds.append((place // batch, tasks.index(kernel.task), kernel))
    return [kernel for _, _, kernel in sorted(rounds, key=lambda each: each[:2])]


def call_of(task: Task, kernels: Path, target: Target) -> run_batch.Json:
    """Return the fields that calls of all kernels of a task share; store its right result in `kernels`."""
    *inputs, result = shapes(task)
    tensors = (
        *(Tensor("TENSOR", task.dtype, shape) for shape in inputs),
        Tensor("TENSOR", task.sums, result),
    )
    args = Arguments(tensors, outputs=(len(inputs),)).with_full_byte_range()
    call = make_timing_call("", "", args, TIMEOUT_SEC, OPTIONS, target)
    return call | {"group": task.name, "check": _check(task, args, kernels)}


def _check(task: Task, arguments: Arguments, kernels: Path) -> run_batch.Json:
    """Return the numeric check of a task; compute and store right results the first time."""
    stem = "".join(letter if letter.isalnum() else "-" for letter in task.name)
    check_file, expected = kernels / f"{stem}-check.json", kernels / f"{stem}-expected.npz"
    if not check_file.exists():
        args = arguments.describe_draws(FREE_RANGE, CHECKED_FLOATS[True])
        values, output = draw_arguments(args, SEED), len(args) - 1
        answers = {output: right_result(task, values[:-1])}
        expected.write_bytes(pack_expected_outputs(answers, [output], MOST_VALUES))
        check = {
            "args": args,
            "seed": SEED,
            "inputs": run_batch.fingerprint(values, [output]),
            "outputs": [output],
            "expected": expected.name,
            "tolerance": [LARGEST_ERROR[task.sums]],
            "rounds": False,
        }
        check_file.write_text(json.dumps(check))
    return json.loads(check_file.read_text())


def right_result(task: Task, inputs: Sequence[Any]) -> Any:
    """Return the result of a task, computed in float64."""
    first, *rest = [each.astype("float64") for each in inputs]
    if task.kind == PRODUCT:
        return first @ rest[0]
    if task.kind == BATCH:
        width = first.shape[-1]
        return _softmax(first @ rest[0].swapaxes(1, 2) / width**0.5) @ rest[1]
    if task.kind == CONVOLUTION:
        return _shifted(first, (1, 2), lambda x, i, j: x @ rest[0][i, j])
    if task.kind == DEPTHWISE:
        return _shifted(first, (2, 3), lambda x, i, j: x * rest[0][:, i, j, None, None])
    if task.kind == NORM:
        centred = first - first.mean(1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(1, keepdims=True) + _EPSILON) * rest[0] + rest[1]
    return _softmax(first)


def _softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _shifted(x: Any, axes: tuple[int, int], weigh: Callable[[Any, int, int], Any]) -> Any:
    """Return the sum of `weigh(shifted x, i, j)` over the 3x3 window."""
    width = [(1, 1) if axis in axes else (0, 0) for axis in range(x.ndim)]
    border, height = np.pad(x, width), x.shape[axes[0]]
    total: Any = 0.0
    for i in range(3):
        for j in range(3):
            window = [slice(None)] * x.ndim
            window[axes[0]], window[axes[1]] = slice(i, i + height), slice(j, j + height)
            total = total + weigh(border[tuple(window)], i, j)
    return total
