"""Cost per candidate of the features in each view that cost models read.

python -m benchmarks.features [MODEL] [--candidates 16] [--seed 0] [--json FILE]

MODEL is an ONNX file; without one, the example mobilenetv2 is built. For the largest task of
each operator, features of random candidates are extracted in every view: in this process for
views of decisions, with 64 times as many candidates; in a compiler child that has seen the
program once for lowered views. Times are processor times, so other load on the machine matters
little. The headline is the median cost of generated code over that of statements.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.hosts import describe_host
from mallorn.core.registry import REGISTRY, resolve
from mallorn.core.targets import Target
from mallorn.costmodels.views import KERNELS
from mallorn.searchers.space import Candidate
from mallorn.workers.device.detect_host import detect_target
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.model_compiler import ModelCompiler, ModelTask
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.round.feature_lookup import LOWERED
from mallorn.workers.round.round_context import descriptors
from mallorn.workers.tvm.network.graph_recipes import recipe_for

RECIPE = "tuned"
MANY = 64


def main() -> None:
    args = _arguments()
    target = detect_target()
    with tempfile.TemporaryDirectory(prefix="mallorn-features-") as scratch:
        tasks = _tasks(args.model or _example(Path(scratch)), target)
    with CandidateCompiler() as compiler:
        rows = [_row(compiler, task, target, args.candidates, args.seed) for task in tasks]
    headline = statistics.median(row["code_ms"] / row["statements_ms"] for row in rows)
    if args.json:
        raw = {"benchmark": "features", "target": target.attrs, "seed": args.seed, **describe_host()}
        args.json.write_text(json.dumps(raw | {"rows": rows, "headline": headline}, indent=1) + "\n")
    for row in rows:
        print(
            "  ".join(
                f"{name} {value:.3f}" if isinstance(value, float) else value for name, value in row.items()
            )
        )
    print(f"code over statements, median: {headline:.0f}")


def _row(
    compiler: CandidateCompiler, task: ModelTask, target: Target, count: int, seed: int
) -> dict[str, Any]:
    """Return the milliseconds per candidate in each view."""
    program = Program(task.key, task.tir, task.args, task.flops)
    work = descriptors(task.flops, task.extents)
    space = TvmSpace(compiler.design_space(program.tir, target.text), program, target, work, compiler)
    samples = space.sample(np.random.default_rng(seed), MANY * count)
    lowered = samples[:count]
    costs = {f"{view}_ms": _pure_ms(space, work, view, samples) for view in sorted(REGISTRY["features"])}
    for view in LOWERED.keys() - {KERNELS.name}:  # is of CUDA kernels
        _ask(compiler, space, program, target, view, lowered[:1])
        started_sec = _spent_sec(compiler)
        _ask(compiler, space, program, target, view, lowered)
        costs[f"{view}_ms"] = (_spent_sec(compiler) - started_sec) * 1000 / count
    return {"op": task.op, "task": task.name, **costs}


def _pure_ms(space: TvmSpace, work: Sequence[float], view: str, samples: Sequence[Candidate]) -> float:
    extractor = resolve("features", view)()
    started_sec = time.process_time()
    extractor.extract(space.by_key, work, samples)
    return (time.process_time() - started_sec) * 1000 / len(samples)


def _spent_sec(compiler: CandidateCompiler) -> float:
    """Return processor seconds of the child and of compilers that it started."""
    return sum(psutil.Process(compiler.pid).cpu_times()[:4])


def _ask(
    compiler: CandidateCompiler,
    space: TvmSpace,
    program: Program,
    target: Target,
    view: str,
    samples: Sequence[Candidate],
) -> None:
    candidates = [(space.by_key[each.sketch].trace, each.decisions) for each in samples]
    compiler.compute_lowered_features(view, program.tir, target.text, candidates)


def _tasks(model: Path, target: Target) -> list[ModelTask]:
    """Return the task of each operator with most FLOPs."""
    with ModelCompiler() as graphs:
        recipe = recipe_for(RECIPE, target)
        extracted = graphs.extract(str(model), target.text, recipe, {})
    ordered = sorted(extracted.tasks, key=lambda task: task.flops)
    return list({task.op: task for task in ordered}.values())


def _example(folder: Path) -> Path:
    subprocess.run([sys.executable, "examples/build.py", "mobilenetv2", "-o", str(folder)], check=True)
    return folder / "mobilenetv2.onnx"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL")
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
