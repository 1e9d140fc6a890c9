"""Networks of one operator with our schedules before any trial, beside onnxruntime, on one core.

python -m benchmarks.operators [NAME ...] [--target JSON] [--core 0] [--guesses 3] [--json FILE]

Ours is the sum of the network's tasks, each the fastest of the first guesses, without a dispatch between
them; onnxruntime's is a whole run. Transposes at the ends count, which a larger network has not.
Each is the least of many short runs; an operator takes half a minute. The headline is the geometric mean of
ours over onnxruntime's.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from math import log2
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from benchmarks.hosts import describe_host
from benchmarks.operators.models import OPERATORS, Shape, model_of
from benchmarks.oracle.arms import first
from benchmarks.oracle.bench import Bench
from benchmarks.oracle.gaps import geometric
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.machine import Machine
from mallorn.workers.device.detect_host import detect_target
from mallorn.workers.hardware_probe.measure_machine import probe_host_machine
from mallorn.workers.interfaces.model_compiler import ModelCompiler, ModelTask
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.tvm.network.graph_recipes import recipe_for

RUNS, RUN_SEC = 500, 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """One operator, in microseconds; the tasks by name."""

    operator: str
    onnxruntime_us: float
    tasks_us: dict[str, float]

    @property
    def ours_us(self) -> float:
        return sum(self.tasks_us.values())

    @property
    def ratio(self) -> float:
        return self.ours_us / self.onnxruntime_us


def main() -> None:
    """Measure operator after operator, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(OPERATORS), help="all, if none is named")
    parser.add_argument("--target", help="as JSON, of one core; default: one core of this machine")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--guesses", type=int, default=3, help="candidates of each task")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.sched_setaffinity(0, [args.core])
    target = parse_target(args.target or {**detect_target().attrs, "num-cores": 1})
    machine = probe_host_machine(target)
    print("| operator | onnxruntime, us | ours, us | ratio |\n|---|---|---|---|")
    rows = [_measured(name, target, machine, args.guesses) for name in args.names]
    headline = geometric(row.ratio for row in rows)
    print(f"ours over onnxruntime, geometric mean: {headline:.3f}")
    if args.json is not None:
        known = {"headline": headline, "target": target.text, "rows": [asdict(row) for row in rows]}
        args.json.write_text(json.dumps(known | describe_host()) + "\n")


def _measured(name: str, target: Target, machine: Machine, guesses: int) -> Row:
    model, shape = model_of(name)
    with tempfile.TemporaryDirectory(prefix="operators-") as folder, ModelCompiler() as graphs:
        path = str(Path(folder, "model.onnx"))
        onnx.save(model, path)
        rival_us = _rival_us(path, shape)
        tasks = graphs.extract(path, target.text, recipe_for("tuned", target), {}).tasks
    ours = {task.name: task.weight * _first_us(task, target, machine, guesses) for task in tasks}
    row = Row(name, rival_us, ours)
    print(f"| {name} | {rival_us:.1f} | {row.ours_us:.1f} | {row.ratio:.2f} |", flush=True)
    return row


def _rival_us(path: str, shape: Shape) -> float:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}
    times, until = [], time.monotonic() + RUN_SEC
    while len(times) < RUNS and time.monotonic() < until:
        begun = time.perf_counter()
        session.run(None, given)
        times.append(time.perf_counter() - begun)
    return 1e6 * min(times)


def _first_us(task: ModelTask, target: Target, machine: Machine, guesses: int) -> float:
    program = Program(task.key, task.tir, task.args, task.flops)
    sizes = tuple(log2(1 + size) for size in (task.flops, *task.extents))
    with Bench(task, target) as bench:
        sketches = bench.compiler.design_space(program.tir, target.text)
        space = TvmSpace(sketches, program, target, sizes, bench.compiler, machine)
        trials = bench.measure(first(space)[:guesses], space.by_key)
    return min(trial.time_us for trial in trials if trial.time_us is not None)


if __name__ == "__main__":
    main()
