"""Checks and times prepared kernels, in turn with the library that computes the same.

    python -m benchmarks.gpu.kernel_times KIND HOME OUT SECONDS

Its parent starts it again when a kernel has ended it. Kernels come in an order in which every task soon has a
first guess, DLight's schedule and some by chance.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.gpu.arithmetic import Arithmetic, Call, arithmetic_of
from benchmarks.gpu.cells import Cells, Row
from benchmarks.gpu.device import CUDA, device_of, load_runtime
from benchmarks.gpu.kernel_index import Kernel, kernels_below
from benchmarks.gpu.tasks import BY_NAME, LARGEST_ERROR, Task, multiplications
from stack.supervised_process import DieWithParent

BURST_US: Final = 5_000.0
MOST_CALLS: Final = 100  # of a burst
BURSTS: Final = 5
SLOW_US: Final = 1_000_000.0  # a run that takes longer is not repeated
COPY_BYTES: Final = {CUDA: 1 << 30}
SMALL_COPY_BYTES: Final = 64 << 20
PEAK_SIZE: Final = {CUDA: 8192}
SMALL_PEAK_SIZE: Final = 256


def main() -> None:
    """Measure what the cells lack until the time is over."""
    DieWithParent(signal.SIGKILL, os.getppid())()
    kind, home, out, seconds = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    until_sec = time.monotonic() + seconds
    cells = Cells(home / "part1.jsonl", out / "part1.jsonl")
    arithmetic = arithmetic_of(kind)  # torch loads its CUDA runtime first
    load_runtime(kind)
    bench = Bench(kind, home / "kernels", arithmetic)
    for name, measurement in (*peaks(kind, arithmetic), *bench.measurements(cells)):
        if time.monotonic() > until_sec:
            return
        cells.measure(name, measurement)
        if cells.rows()[-1].get("sticky"):
            sys.exit(1)  # every later call of this process would fail as well


def peaks(kind: str, arithmetic: Arithmetic) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield measurements of the device itself: copies, and products by its own library."""
    yield "copy bandwidth", lambda: _copy_rate(kind, arithmetic)
    for precision in ("fp16", "tf32", "fp32"):
        yield f"product peak {precision}", lambda precision=precision: _peak(kind, precision, arithmetic)


def _copy_rate(kind: str, arithmetic: Arithmetic) -> Row:
    task = Task("copy", "copy", (COPY_BYTES.get(kind, SMALL_COPY_BYTES) // 4,))
    source, target = arithmetic.inputs(task)[0], arithmetic.result(task)

    def copy() -> None:
        target[:] = source

    copy()
    us = median(arithmetic.times_us(copy, 5, False) for _ in range(BURSTS))
    return {"gigabytes_per_sec": round(2 * source.nbytes / us / 1e3, 2), "counted": "bytes read and written"}


def _peak(kind: str, precision: str, arithmetic: Arithmetic) -> Row:
    size = PEAK_SIZE.get(kind, SMALL_PEAK_SIZE)
    dtype = "float16" if precision == "fp16" else "float32"
    task = Task(precision, "product", (size, size, size), dtype, dtype)
    rival = arithmetic.rival(task, arithmetic.inputs(task))
    if rival is None:
        return {"ok": None, "left_out": "torch is not installed"}
    with arithmetic.tensor_float(precision == "tf32"):
        rival[1]()
        us = median(arithmetic.times_us(rival[1], 5, False) for _ in range(BURSTS))
    return {"library": rival[0], "size": size, "tflops": round(2 * multiplications(task) / us / 1e6, 3)}


class Bench:
    """Holds the arrays of one task at a time, beside its kernels."""

    def __init__(self, kind: str, folder: Path, arithmetic: Arithmetic) -> None:
        import tvm

        self._folder, self._arithmetic, self._runtime = folder, arithmetic, tvm.runtime
        self._device = device_of(kind)
        self._task: Task | None = None
        self._inputs: list[Any] = []
        self._expected: Any = None
        self._rival: tuple[str, Call] | None = None

    def measurements(self, cells: Cells) -> Iterator[tuple[str, Callable[[], Row]]]:
        """Yield every prepared kernel that has no cell yet, task by task, with its measurement."""
        for kernel in in_rounds(list(kernels_below(self._folder))):
            if kernel.cell not in cells:
                yield kernel.cell, lambda kernel=kernel: self._measure(kernel)

    def _measure(self, kernel: Kernel) -> Row:
        task = BY_NAME[kernel.task]
        self._prepare(task)
        library = self._runtime.load_module(str(self._folder / kernel.file))["main"]
        result = self._arithmetic.result(task)
        arguments = [self._arithmetic.tvm(each) for each in (*self._inputs, result)]
        about: Row = {"task": kernel.task, "means": kernel.means}
        began_sec = time.monotonic()
        try:
            library(*arguments)
            self._device.sync()
        except Exception as error:
            return about | {"ok": False, "error": f"{type(error).__name__}: {error}"[:500]} | self._sticky()
        once_us = (time.monotonic() - began_sec) * 1e6
        error = self._arithmetic.error(result, self._expected)
        about["error_norm"] = error if error == error else None
        if not error <= LARGEST_ERROR[task.sums]:
            return about | {"ok": False, "error": f"relative error {error:.2g}"}
        if once_us > SLOW_US:
            return about | {"us": round(once_us, 3), "slow": True}
        return about | self._times(task, lambda: library(*arguments))

    def _prepare(self, task: Task) -> None:
        if task is not self._task:
            self._task = None
            self._inputs = self._arithmetic.inputs(task)
            self._expected = self._arithmetic.expected(task, self._inputs)
            self._rival = self._arithmetic.rival(task, self._inputs)
            self._task = task

    def _times(self, task: Task, ours: Call) -> Row:
        """Time our kernel and its rival burst by burst, in turn."""
        arithmetic = self._arithmetic
        rivals = [] if self._rival is None else [self._rival]
        calls = [("us", ours), *(("rival_us", call) for _, call in rivals)]
        numbers = {
            name: int(min(MOST_CALLS, max(1, BURST_US // max(arithmetic.times_us(call, 1, task.cold), 1.0))))
            for name, call in calls
        }
        times: dict[str, list[float]] = {name: [] for name, _ in calls}
        for _ in range(BURSTS):
            for name, call in calls:
                times[name].append(round(arithmetic.times_us(call, numbers[name], task.cold), 3))
        told: Row = {name: median(values) for name, values in times.items()}
        told |= {f"all_{name}": list(values) for name, values in times.items()}
        if self._rival is None:
            return told | {"rival_left_out": "torch is not installed"}
        return told | {"rival": self._rival[0]}

    def _sticky(self) -> Row:
        """Tell whether the device works no more in this process after an error."""
        try:
            self._device.sync()
            self._runtime.empty((1,), "float32", self._device)
        except Exception:
            return {"sticky": True}
        return {}


def in_rounds(kernels: Sequence[Kernel], batch: int = 6) -> list[Kernel]:
    """Order kernels so that each task has `batch` of them in turn: arrays are made once a batch."""
    places: dict[str, int] = {}
    rounds: list[tuple[int, int, Kernel]] = []
    tasks = list(dict.fromkeys(kernel.task for kernel in kernels))
    for kernel in kernels:
        place = places[kernel.task] = places.get(kernel.task, -1) + 1
        rounds.append((place // batch, tasks.index(kernel.task), kernel))
    return [kernel for _, _, kernel in sorted(rounds, key=lambda each: each[:2])]


if __name__ == "__main__":
    main()
