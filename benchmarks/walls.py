"""Cost of the sandbox: start of a child process, and a schedule's latency on a device.

python -m benchmarks.walls [--starts 10] [--passes 20] [--size 512] [--json FILE]

A start is that of the process which compiles candidates, from launch to its first answer, with
TVM loaded. The schedule is a candidate of a square matrix product, timed in turn by two
devices on this host: one sandboxes its sessions, the other does not. The order alternates. The
headline is the latency with sandbox over that without in the same pass, a median over passes.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.hosts import describe_host
from mallorn.core.address_checks import free_port
from mallorn.core.errors import Unavailable
from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.settings import Settings, settings
from mallorn.core.targets import Target
from mallorn.searchers.decision_space import SketchRules
from mallorn.workers.device.detect_host import detect_target
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.tracked_devices import Fleet
from mallorn.workers.sandbox.sandbox import BEST_EFFORT, OFF
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support

MODES: Final = {"with": BEST_EFFORT, "without": OFF}
DRAWN: Final = 40
PATIENCE_SEC: Final = 120.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A library and the arguments to call it with."""

    library: Path
    args: Arguments


def main() -> None:
    """Measure starts and latencies, and print them."""
    options = _arguments()
    with TemporaryDirectory(prefix="mallorn-walls-") as scratch:
        room, target = Path(scratch), detect_target()
        starts = in_turn(options.starts, lambda name: _start_sec(name, target, room))
        latencies = _latencies(options.size, options.passes, target, room)
    figures = {"start_sec": told(starts), "latency_us": told(latencies)}
    headline = figures["latency_us"]["ratio"]
    if options.json:
        raw = {
            "benchmark": "walls",
            "sandbox": probe_sandbox_support(BEST_EFFORT),
            "size": options.size,
            **describe_host(),
        }
        options.json.write_text(json.dumps(raw | figures | {"headline": headline}, indent=1) + "\n")
    for name, each in figures.items():
        _say(f"{name}: {each['median_with']:.4g} with walls, {each['median_without']:.4g} without")
    _say(f"latency with walls over that without, median of {options.passes} passes: {headline:.4f}")


def in_turn(passes: int, measure: Callable[[str], float]) -> dict[str, list[float]]:
    """Measure each mode in every pass, alternating the order; return the values."""
    values: dict[str, list[float]] = {name: [] for name in MODES}
    for number in range(passes):
        for name in sorted(MODES, reverse=bool(number % 2)):
            values[name].append(measure(name))
    return values


def told(found: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return raw values, medians, and the median of the ratios of each pass."""
    ratios = [on / off for on, off in zip(found["with"], found["without"], strict=True)]
    medians = {f"median_{name}": median(values) for name, values in found.items()}
    return {**found, **medians, "ratio": median(ratios)}


def _start_sec(name: str, target: Target, room: Path) -> float:
    os.environ["MALLORN_SANDBOX"] = MODES[name]
    settings.cache_clear()
    started_sec = time.perf_counter()
    with CandidateCompiler(room=room) as child:
        child.vector_lanes(target.text)
        return time.perf_counter() - started_sec


def _latencies(size: int, passes: int, target: Target, room: Path) -> dict[str, list[float]]:
    subject = _subject(size, target, room)
    with ExitStack() as stack:
        trackers = {name: stack.enter_context(_device(mode, target)) for name, mode in MODES.items()}
        runner = stack.enter_context(Runner())

        def measure(name: str) -> float:
            arguments = trackers[name], target.text, str(subject.library), subject.args, EvaluatorOptions()
            run = runner.time_candidate(*arguments, "fixed", f"walls/{name}", PATIENCE_SEC)
            return median(run.run_us)

        in_turn(1, measure)  # warm up
        return in_turn(passes, measure)


def _subject(size: int, target: Target, room: Path) -> Subject:
    """Build the first valid candidate of those drawn with seed 0."""
    import tvm
    from tvm import te

    from mallorn.workers.tvm.programs.program_blocks import arguments
    from mallorn.workers.tvm.programs.workload_key import rename_blocks_canonically

    a, b = (te.placeholder((size, size), name=name) for name in "ab")
    k = te.reduce_axis((0, size))
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    module = rename_blocks_canonically(tvm.IRModule({"main": te.create_prim_func([a, b, c])}))
    tir, library = tvm.ir.save_json(module), room / "candidate.so"
    with CandidateCompiler(room=room) as child:
        sketch = child.design_space(tir, target.text)[0]
        candidates = SketchRules(sketch).sample(np.random.default_rng(0), DRAWN).tolist()
        valid = child.validate(tir, target.text, [(sketch.trace, each) for each in candidates])
        decisions = next(each for each, is_valid in zip(candidates, valid, strict=True) if is_valid)
        built = child.build(tir, target.text, sketch.trace, decisions, str(library), any_size=True)
    return Subject(library, arguments(module).with_tensors(built.args))


@contextmanager
def _device(mode: str, target: Target) -> Iterator[str]:
    """Run a tracker and a device with this sandbox mode; yield the tracker's address."""
    tracker = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack, TemporaryDirectory(prefix="mallorn-walls-") as folder:
        env = os.environ | {"MALLORN_SANDBOX": mode, "MALLORN_DATA_DIR": folder, "MALLORN_TRACKER": tracker}
        for words in (["tracker"], ["device", "--target", target.text, "--name", mode, "--port", "0"]):
            process = subprocess.Popen([sys.executable, "-m", "mallorn", *words], env=env)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        _wait_for(Fleet(Settings(tracker=tracker, data_dir=Path(folder))), target)
        yield tracker


def _wait_for(fleet: Fleet, target: Target) -> None:
    deadline_sec = time.monotonic() + PATIENCE_SEC
    while time.monotonic() < deadline_sec:
        try:
            if fleet.devices(target):
                return
        except Unavailable:  # the tracker has not started
            pass
        time.sleep(0.2)
    sys.exit("no device came: nothing was measured")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
