"""Check and time prepared kernels, in turn with a library that computes the same.

    python -m benchmarks.gpu.kernel_times KIND HOME OUT SECONDS

Its parent restarts it if a kernel ends it. Kernels are ordered so that every task soon has its first
guess, DLight's schedule and some random candidates timed.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.gpu.arithmetic import Arithmetic, Call, arithmetic_of
from benchmarks.gpu.cells import Cells, Row
from benchmarks.gpu.device import CUDA, device_of
from benchmarks.gpu.kernel_index import WGMMA, WGMMA_ARCH
from benchmarks.gpu.tasks import BY_NAME, Task, multiplications
from mallorn.core.errors import MallornError
from mallorn.core.targets import Target
from mallorn.stack.supervised_process import DieWithParent
from mallorn.workers.detached.batch_child import TargetDevice
from mallorn.workers.detached.run_batch import MANIFEST, Json

BURST_US: Final = 5_000.0
MOST_CALLS: Final = 100  # calls in a burst
BURSTS: Final = 3  # bursts of the rival before and after each kernel
COPY_BYTES: Final = {CUDA: 1 << 30}
SMALL_COPY_BYTES: Final = 64 << 20
PEAK_SIZE: Final = {CUDA: 8192}
SMALL_PEAK_SIZE: Final = 256


def main() -> None:
    """Measure missing cells until time runs out."""
    DieWithParent(signal.SIGKILL, os.getppid())()
    kind, home, out, seconds = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    until_sec = time.monotonic() + seconds
    cells = Cells(home / "part1.jsonl", out / "part1.jsonl")
    arithmetic = arithmetic_of(kind)  # first, so that torch loads its own CUDA runtime
    try:
        bench = Bench(kind, home / "kernels", arithmetic)
    except MallornError as refusal:
        return cells.keep("kernels", ok=False, error=str(refusal))
    for name, measurement in (*peaks(kind, arithmetic), *bench.measurements(cells)):
        if time.monotonic() > until_sec:
            return
        cells.measure(name, measurement)
        if cells.rows()[-1].get("sticky"):
            sys.exit(1)  # all later calls of this process would fail, too


def peaks(kind: str, arithmetic: Arithmetic) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield measurements of the device's peaks: a copy, and products by its library."""
    yield "copy bandwidth", lambda: _copy_rate(kind, arithmetic)
    for precision in ("fp16", "tf32", "fp32"):
        yield f"product peak {precision}", lambda precision=precision: _peak(kind, precision, arithmetic)


def _copy_rate(kind: str, arithmetic: Arithmetic) -> Row:
    numbers = COPY_BYTES.get(kind, SMALL_COPY_BYTES) // 4
    source = arithmetic.inputs([["float32", [numbers], 0.0, 1.0]])[0]
    target = 0 * source

    def copy() -> None:
        target[:] = source

    copy()
    us = median(arithmetic.times_us(copy, 5, False) for _ in range(BURSTS))
    return {"gigabytes_per_sec": round(2 * source.nbytes / us / 1e3, 2), "counted": "bytes read and written"}


def _peak(kind: str, precision: str, arithmetic: Arithmetic) -> Row:
    size = PEAK_SIZE.get(kind, SMALL_PEAK_SIZE)
    dtype = "float16" if precision == "fp16" else "float32"
    task = Task(precision, "product", (size, size, size), dtype, dtype)
    rival = arithmetic.rival(task, arithmetic.inputs([[dtype, [size, size], 0.1, 1.0]] * 2))
    if rival is None:
        return {"ok": None, "left_out": "torch is not installed"}
    with arithmetic.tensor_float(precision == "tf32"):
        rival[1]()
        us = median(arithmetic.times_us(rival[1], 5, False) for _ in range(BURSTS))
    return {"library": rival[0], "size": size, "tflops": round(2 * multiplications(task) / us / 1e6, 3)}


class Bench:
    """Times kernels of the batch by run_batch.py's code, each between bursts of its rival."""

    def __init__(self, kind: str, folder: Path, arithmetic: Arithmetic) -> None:
        """Raises MallornError if the kernels are for another kind of machine."""
        self._arithmetic, self._kind = arithmetic, kind
        self._batch = json.loads((folder / MANIFEST).read_bytes())
        self._timer = TargetDevice(self._batch, folder, Path(), "off")
        self._task: Task | None = None
        self._rival: tuple[str, Call] | None = None
        self._number = 1
        self._bests: dict[str, float] = {}

    def measurements(self, cells: Cells) -> Iterator[tuple[str, Callable[[], Row]]]:
        """Yield every prepared kernel without a cell, with its measurement."""
        for row in cells.rows():
            self._note(row)
        if all(call["means"] != WGMMA for call in self._batch["calls"]):
            yield WGMMA, self._leave_out_wgmma
        for call in self._batch["calls"]:
            if call["key"] not in cells:
                yield call["key"], lambda call=call: self._measure(call)

    def _leave_out_wgmma(self) -> Row:
        target = Target(self._batch["needs"]["target"])
        place = target.attrs.get("arch") or target.kind
        why = "it is not among the kernels" if place == WGMMA_ARCH else f"the kernels are for {place}"
        return {"ok": None, "left_out": f"it runs on {WGMMA_ARCH} only, and {why}"}

    def _measure(self, call: Json) -> Row:
        self._prepare(BY_NAME[call["task"]], call)
        rivals_us = self._rival_us(call["cold"])
        about: Row = {name: call[name] for name in ("task", "means", "kind", "cold")}
        try:
            timing = call["timing"] | {"best_us": self._bests.get(call["task"])}
            answer = self._timer.run_call(call | {"timing": timing})
        except Exception as error:
            return about | {"ok": False, "error": f"{type(error).__name__}: {error}"[-500:]} | self._sticky()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        row = about | {"ok": answer["outcome"] == "ok", "error_max": answer["max_error"]}
        if not row["ok"]:
            return row | {"error": answer["error"]}
        row |= {"us": round(median(answer["run_us"]), 3), "all_us": [round(us, 3) for us in answer["run_us"]]}
        row |= {"disturbed": answer["disturbed"], "disturbance": answer["disturbance"]}
        self._note(row)
        if self._rival is None:
            return row | {"rival_left_out": "torch is not installed"}
        rivals_us += self._rival_us(call["cold"])
        return row | {"rival": self._rival[0], "rival_us": median(rivals_us), "all_rival_us": list(rivals_us)}

    def _note(self, row: Row) -> None:
        """Remember the fastest time of each task, against which later kernels race."""
        if row.get("us") is not None and "task" in row:
            task, us = str(row["task"]), float(str(row["us"]))
            self._bests[task] = min(us, self._bests.get(task, us))

    def _prepare(self, task: Task, call: Json) -> None:
        if task is not self._task:
            self._task = self._rival = None
            self._rival = self._arithmetic.rival(task, self._arithmetic.inputs(call["args"][:-1]))
            if self._rival is not None:
                once_us = max(self._arithmetic.times_us(self._rival[1], 1, call["cold"]), 1.0)
                self._number = int(min(MOST_CALLS, max(1, BURST_US // once_us)))
            self._task = task

    def _rival_us(self, cold: bool) -> list[float]:
        if self._rival is None:
            return []
        call = self._rival[1]
        return [round(self._arithmetic.times_us(call, self._number, cold), 3) for _ in range(BURSTS)]

    def _sticky(self) -> Row:
        """Return `sticky` if, after an error, the device no longer works in this process."""
        try:
            device_of(self._kind).sync()
        except Exception:
            return {"sticky": True}
        return {}


if __name__ == "__main__":
    main()
