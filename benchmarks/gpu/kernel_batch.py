"""Write the prepared kernels as a batch, which run_batch.py's code checks and times."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.gpu.kernel_index import Kernel, kernels_below
from benchmarks.gpu.tasks import (
    BATCH,
    BLOCK,
    BY_NAME,
    CHANNELS_LAST,
    CODED,
    CONVOLUTION,
    DEPTHWISE,
    EPSILON,
    FUSED,
    NORM,
    ONE_KERNEL,
    POOL,
    PRODUCT,
    SOFTMAX,
    SUM,
    TF32,
    TRANSPOSE,
    TRANSPOSED,
    Task,
    largest_error,
    operands,
)
from mallorn.core.job_options import EvaluatorOptions, JobOptions
from mallorn.core.targets import Target
from mallorn.workers.detached import run_batch
from mallorn.workers.detached.pack_batch import (
    make_timing_call,
    pack_expected_outputs,
    target_requirements,
)
from mallorn.workers.device.random_and_saved_arrays import (
    FLOAT_RANGE,
    INT_RANGE,
    checksum_inputs,
    draw_arguments,
)
from mallorn.workers.finish.numeric_check import RUN_TIMEOUT_SEC
from mallorn.workers.host.code_digest import TVM_VERSION
from mallorn.workers.interfaces.output_comparison import Reference
from mallorn.workers.interfaces.tensor_arguments import FREE_RANGE, Arguments, Tensor
from mallorn.workers.measure.compare_outputs import tolerance

NAME: Final = "gpu-minutes"
SEED: Final = 1
# Racing measures slow kernels only roughly.
OPTIONS: Final = JobOptions(
    evaluator=EvaluatorOptions(number=1, repeat=5, min_repeat_ms=5), stopping="racing"
)
TIMEOUT_SEC: Final = 20.0
MOST_VALUES: Final = 4096  # values of a result that are compared
_WORDS: Final = (0, 1 << 32)  # range of 32-bit words


def write_batch(kernels: Path, target: Target) -> None:
    """Write the manifest of a batch of all built kernels, and their tasks' right results."""
    order = in_rounds(list(kernels_below(kernels)))
    about = {task: call_of(BY_NAME[task], kernels, target) for task in {each.task for each in order}}
    calls = [
        {
            **about[each.task],
            "key": each.cell,
            "library": each.file,
            "task": each.task,
            "means": each.means,
            "kind": each.kind,
        }
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
    tensors = tuple(Tensor("TENSOR", *each) for each in operands(task))
    words = {str(place): _WORDS for place, each in enumerate(tensors) if each.dtype == "uint32"}
    args = Arguments(tensors, (len(tensors) - 1,), words).with_full_byte_range()
    call = make_timing_call("", "", args, TIMEOUT_SEC, OPTIONS, target)
    limit_sec = call["limit_sec"] + RUN_TIMEOUT_SEC
    draws, cold = args.describe_draws(INT_RANGE, FLOAT_RANGE), call["timing"]["evaluator"]["flush_l2"] == "on"
    about = {"group": task.name, "args": draws, "cold": cold, "limit_sec": limit_sec}
    return call | about | {"check": _check(task, args, kernels)}


def _check(task: Task, arguments: Arguments, kernels: Path) -> run_batch.Json:
    """Return the numeric check of a task; compute and store right results the first time."""
    stem = "".join(letter if letter.isalnum() else "-" for letter in task.name)
    check_file, expected = kernels / f"{stem}-check.json", kernels / f"{stem}-expected.npz"
    if not check_file.exists():
        args = arguments.describe_draws(FREE_RANGE, (-1.0, 1.0))
        values, output = draw_arguments(args, SEED), len(args) - 1
        answers = {output: right_result(task, values[:-1])}
        expected.write_bytes(pack_expected_outputs(answers, [output], MOST_VALUES))
        more_error = largest_error(task) - tolerance(arguments.args[output].dtype, 1)
        check = {
            "args": args,
            "seed": SEED,
            "inputs": checksum_inputs(values, [output]),
            "expected": expected.name,
            "reference": asdict(Reference([output], 1, float16_error=more_error)),
            "timeout_sec": RUN_TIMEOUT_SEC,
        }
        check_file.write_text(json.dumps(check))
    return json.loads(check_file.read_text())


def right_result(task: Task, inputs: Sequence[Any]) -> Any:
    """Return the result of a task, computed in float64 from factors that are rounded as the task rounds."""
    if task.kind == CODED:
        inputs = inputs[0], decoded(task, *inputs[1:])
    elif task.kind == TF32:
        inputs = list(map(rounded_to_tf32, inputs))
    return _RIGHT[task.kind](*(each.astype("float64") for each in inputs))


def decoded(task: Task, words: Any, scales: Any) -> Any:
    """Return the weights of few bits that these words hold, [outputs, inputs], in the type of the factors."""
    bits, (outputs, inputs) = task.sizes[-1], task.sizes[1:3]
    codes = words[..., None] >> np.arange(0, 32, bits, dtype="uint32") & np.uint32((1 << bits) - 1)
    numbers = codes.reshape(outputs, inputs).astype("float32") - (1 << bits - 1)
    return (numbers * np.repeat(scales.astype("float32"), BLOCK, axis=1)).astype(task.dtype)


def rounded_to_tf32(numbers: Any) -> Any:
    """Return the TF32 numbers next to finite float32 numbers."""
    return (numbers.view("uint32") + np.uint32(0x1000) & np.uint32(0xFFFFE000)).view("float32")


def _attention(queries: Any, keys: Any, values: Any) -> Any:
    return _softmax(queries @ keys.swapaxes(1, 2) / queries.shape[-1] ** 0.5) @ values


def _layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + EPSILON) * scale + shift


def _max_pool(x: Any) -> Any:
    border = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(border, (3, 3), (1, 2))
    return windows[:, ::2, ::2].max((-2, -1))


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


_RIGHT: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys((PRODUCT, TF32), np.matmul),
    **dict.fromkeys((TRANSPOSED, CODED), lambda x, weights: x @ weights.T),
    FUSED: lambda x, weights, bias: np.maximum(x @ weights + bias, 0),
    **dict.fromkeys((BATCH, ONE_KERNEL), _attention),
    CONVOLUTION: lambda x, w: _shifted(x, (1, 2), lambda window, i, j: window @ w[i, j]),
    DEPTHWISE: lambda x, w: _shifted(x, (2, 3), lambda window, i, j: window * w[:, i, j, None, None]),
    CHANNELS_LAST: lambda x, w: _shifted(x, (1, 2), lambda window, i, j: window * w[i, j, :, 0]),
    SOFTMAX: _softmax,
    NORM: _layer_norm,
    TRANSPOSE: np.transpose,
    SUM: np.add,
    POOL: _max_pool,
}
