"""Causes of longer runs of small kernels next to other programs, when no thread waited.

python -m benchmarks.disturbed_causes [--passes 5] [--arms NAME ...] [--json FILE]

Four functions are timed in slices as a device times candidates, on a quiet host and next to other
programs in turn, each time in a new process, since processes differ.
Only slices in which no thread waited for a processor count. Each function shows one cause:

- `start`: a parallel loop that computes nothing. It grows with the cost of starting and joining threads.
- `registers`: one thread, no memory. It grows with a slower clock or a shared core.
- `cache`: one thread that reads a matrix of 256 KiB. It grows if others evict its cache lines.
- `kernel`: a parallel elementwise operation of some microseconds, as candidates are.

Each is timed with the threads as a device has them, with threads that sleep instead of waiting in a loop of
`sched_yield` (`TVM_THREAD_POOL_SPIN_COUNT=0`), and at normal priority. The host's stolen time is recorded.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.disturbers import COMPANY
from benchmarks.hosts import describe_host

ROWS: Final = ("quiet", "one program", "two programs", "two at nice 19", "memory", "compilation")
SLEEPS: Final = {"TVM_THREAD_POOL_SPIN_COUNT": "0"}
#: Arms: environment variables of the threads, and whether they get a raised priority.
ARMS: Final[Mapping[str, tuple[Mapping[str, str], bool]]] = {
    "as devices": ({}, True),
    "sleeping": (SLEEPS, True),
    "normal priority": ({}, False),
}
SLICES: Final = 40
SLICE_SEC: Final = 0.005
QUIET: Final = 0.001  # the share of a slice in which a thread may have waited


@dataclass(frozen=True, slots=True)
class Cell:
    """Figures of one function in one arm, next to one kind of other programs."""

    company: str
    arm: str
    function: str
    us: float | None  # median of quiet slices over all passes
    processes: list[float]  # median of each pass (one process)
    slices: int  # quiet ones
    waited: int  # slices in which a thread waited
    switches: float  # context switches of threads per run
    stolen: float  # share of processor time used by other virtual machines


def main() -> None:
    options = _arguments()
    with TemporaryDirectory(prefix="mallorn-causes-") as folder:
        library = Path(folder, "functions.so")
        build(library)
        rows_by_key: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
        for _ in range(options.passes):
            for company in ROWS:
                with COMPANY[company]():
                    for arm in options.arms:
                        for function, row in _time_in_child(library, arm).items():
                            rows_by_key[company, arm, function].append(row)
    cells = [_cell(key, rows) for key, rows in rows_by_key.items()]
    for cell in cells:
        print(json.dumps(asdict(cell)))
    summary = headline(cells)
    if options.json:
        raw = {"headline": summary, "passes": options.passes, "cells": [asdict(cell) for cell in cells]}
        options.json.write_text(json.dumps(raw | describe_host(), indent=1) + "\n")
    print(summary)


def headline(cells: list[Cell]) -> str:
    """Describe each function's range over processes, quiet and next to other programs."""
    parts = []
    for function in dict.fromkeys(cell.function for cell in cells):
        alike = [cell for cell in cells if cell.arm == "as devices" and cell.function == function]
        quiet = [us for cell in alike if cell.company == "quiet" for us in cell.processes]
        others = [us for cell in alike if cell.company != "quiet" for us in cell.processes]
        if quiet and others:
            ranges = f"{min(quiet):.2f} to {max(quiet):.2f} us", f"{min(others):.2f} to {max(others):.2f}"
            parts.append(f"{function} {ranges[0]} in quiet processes, {ranges[1]} beside others")
    return "; ".join(parts)


def build(library: Path) -> None:
    """Compile the four functions for this host to `library`."""
    import tvm
    from tvm import te

    from mallorn.core.targets import parse_target
    from mallorn.workers.device.detect_host import detect_target

    cores = os.cpu_count() or 1
    out = te.compute((cores,), lambda _: te.const(1.0, "float32"), "start")
    start = te.create_prim_func([out])
    seed = te.placeholder((1,), name="seed")
    step = te.reduce_axis((0, 4096), "step")
    registers = te.create_prim_func(
        [seed, te.compute((1,), lambda i: te.sum(seed[i] * step.astype("float32"), step), "registers")]
    )
    matrix = te.placeholder((256, 256), name="matrix")
    row, column = te.reduce_axis((0, 256), "row"), te.reduce_axis((0, 256), "column")
    cache = te.create_prim_func(
        [matrix, te.compute((1,), lambda _: te.sum(matrix[row, column], [row, column]), "cache")]
    )
    x = te.placeholder((cores, 8192), name="x")
    kernel = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] * 2.0 + 1.0, "kernel")])
    mod = tvm.IRModule()
    for name, function, parallel in (
        ("start", start, True),
        ("registers", registers, False),
        ("cache", cache, False),
        ("kernel", kernel, True),
    ):
        schedule = tvm.s_tir.Schedule(function)
        if parallel:
            schedule.parallel(schedule.get_loops(schedule.get_sblock(name))[0])
        mod[name] = schedule.mod["main"].with_attr("global_symbol", name)
    target = tvm.target.Target(parse_target(detect_target().text).attrs | {"kind": "llvm"})
    tvm.compile(mod, target=target).export_library(str(library))


def _time_in_child(library: Path, arm: str) -> dict[str, dict[str, Any]]:
    env, raised = ARMS[arm]
    threads = {"TVM_NUM_THREADS": str(os.cpu_count() or 1), **env}
    command = [sys.executable, "-m", "benchmarks.disturbed_causes", "--time", str(library)]
    process = subprocess.run(
        [*command, *(["--raised"] if raised else [])],
        env=os.environ | threads,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows: dict[str, dict[str, Any]] = json.loads(process.stdout)
    return rows


def time_functions(library: Path, raised: bool) -> dict[str, dict[str, Any]]:
    """Time each function in this process."""
    import numpy as np
    import tvm
    import tvm_ffi

    from mallorn.workers.device.slice_timer import NEXT_SLICE, SliceTimer
    from mallorn.workers.host.load_meter import LoadMeter
    from mallorn.workers.host.process_priority import raise_priority

    timer = SliceTimer(True, raised and raise_priority())
    tvm_ffi.register_global_func(NEXT_SLICE, timer.count_slice, override=True)
    cores = os.cpu_count() or 1
    shapes = {
        "start": [(cores,)],
        "registers": [(1,), (1,)],
        "cache": [(256, 256), (1,)],
        "kernel": [(cores, 8192), (cores, 8192)],
    }
    loaded, rows = tvm.runtime.load_module(str(library)), {}
    for name, sizes in shapes.items():
        tensors = [tvm.runtime.tensor(np.ones(size, "float32")) for size in sizes]
        rough = min(loaded.time_evaluator(name, tvm.cpu(), number=50, repeat=5)(*tensors).results)
        number = max(1, round(SLICE_SEC / rough))
        meter, before = LoadMeter(lambda: ()), _switches()
        times = timer.time_slices(loaded, name, "cpu", number, SLICES, *tensors)
        switches = (_switches() - before) / (number * SLICES)
        rows[name] = {
            "quiet_us": [each.mean_sec * 1e6 for each in times.slices if (each.disturbed or 0.0) <= QUIET],
            "waited": sum((each.disturbed or 0.0) > QUIET for each in times.slices),
            "switches": switches,
            "stolen": meter.read_load().stolen,
        }
    return rows


def _switches() -> int:
    texts = [path.read_text() for path in Path("/proc/self/task").glob("*/status")]
    lines = [line for text in texts for line in text.splitlines() if "ctxt_switches" in line]
    return sum(int(line.split()[1]) for line in lines)


def _cell(key: tuple[str, str, str], rows: list[dict[str, Any]]) -> Cell:
    us = [each for row in rows for each in row["quiet_us"]]
    return Cell(
        *key,
        us=median(us) if us else None,
        processes=[round(median(row["quiet_us"]), 3) for row in rows if row["quiet_us"]],
        slices=len(us),
        waited=sum(row["waited"] for row in rows),
        switches=median(row["switches"] for row in rows),
        stolen=median(row["stolen"] for row in rows),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--time", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--raised", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.time:
        print(json.dumps(time_functions(options.time, options.raised)))
        sys.exit()
    return options


if __name__ == "__main__":
    main()
