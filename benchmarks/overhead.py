"""Seconds per trial of Mallorn and of stock MetaSchedule, and the latency of their models.

python -m benchmarks.overhead [MODEL ...] [--trials N] [--seed 0] [--json FILE]

Both arms get the same module (the same graph recipe), evaluator and threads, and an empty
dataset; ours times candidates in full, as stock does (`stopping=fixed`). Stock runs 64 trials
per batch and at least 64 per task. MODEL is an ONNX file; without one, the examples mlp and
bert-small are built. The headline is stock's seconds per trial over ours, a geometric mean.
Ours include final measurements, verification and export, which stock does not do.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from math import prod
from pathlib import Path
from typing import Any

from benchmarks.arms import Arm, compare_latency, count_tasks, mallorn_arm, stock_arm
from benchmarks.hosts import describe_host
from mallorn.core.targets import Target
from mallorn.workers.device.detect_host import detect_target

TRIALS_PER_TASK = 64
RECIPE = "tuned"


def main() -> None:
    args = _arguments()
    target = detect_target()
    with tempfile.TemporaryDirectory(prefix="mallorn-overhead-") as scratch:
        models = args.models or _examples(Path(scratch))
        cells = [_cell(model, target, args.trials, args.seed, Path(scratch) / model.stem) for model in models]
    ratios = [cell["speedup_total"] for cell in cells]
    headline = prod(ratios) ** (1 / len(ratios))
    if args.json:
        raw = {"benchmark": "overhead", "target": target.attrs, "seed": args.seed, **describe_host()}
        args.json.write_text(json.dumps(raw | {"cells": cells, "headline": headline}, indent=1) + "\n")
    for cell in cells:
        _print(cell)
    _say(f"stock's seconds per trial over ours, geometric mean: {headline:.2f}")


def _cell(model: Path, target: Target, trials: int | None, seed: int, folder: Path) -> dict[str, Any]:
    """Run stock, then ours on one model, then time both results in turn."""
    folder.mkdir()
    count = trials or TRIALS_PER_TASK * count_tasks(model, target, RECIPE)
    _say(f"{model.stem}: {count} trials, stock first")
    stock = stock_arm(model, target, count, seed, folder, RECIPE)
    _say(f"{model.stem}: stock took {stock.tuning_sec:.0f} s")
    ours = mallorn_arm(model, target, count, seed, folder, {"recipe": RECIPE, "stopping": "fixed"})
    _say(f"{model.stem}: ours took {ours.total_sec:.0f} s")
    schedules = {"stock": stock.schedules, "mallorn": ours.schedules}
    return {
        "model": model.stem,
        "trials": count,
        "stock": stock.figures(),
        "mallorn": ours.figures(),
        "latency_us": compare_latency(model, target, RECIPE, schedules, folder),
        "speedup_total": _per_trial(stock, "total") / _per_trial(ours, "total"),
        "speedup_tuning": _per_trial(stock, "tuning") / _per_trial(ours, "tuning"),
    }


def _per_trial(arm: Arm, phase: str) -> float:
    return float(arm.figures()[f"{phase}_sec_per_trial"])


def _examples(folder: Path) -> list[Path]:
    names = ["mlp", "bert-small"]
    subprocess.run([sys.executable, "examples/build.py", *names, "-o", str(folder)], check=True)
    return [folder / f"{name}.onnx" for name in names]


def _print(cell: dict[str, Any]) -> None:
    latency = cell["latency_us"]
    for name in ("stock", "mallorn"):
        arm, model = cell[name], latency[name]
        _say(
            f"{cell['model']:12} {name:8} {arm['tuning_sec_per_trial']:.3f} s a trial tuning, "
            f"{arm['total_sec_per_trial']:.3f} in all, {arm['failures']} failed of {arm['trials']}; model "
            f"{model['median']:.0f} us [{model['low']:.0f}, {model['high']:.0f}], "
            f"{model['found']} of {model['of']} workloads found"
        )
    _say(f"{cell['model']:12} onnxruntime {latency['onnxruntime']['median']:.0f} us")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--trials", type=int, help="for each model; default: 64 a task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
