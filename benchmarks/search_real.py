"""Compares Mallorn's defaults with stock tune_relax: trials and seconds to a fast model.

python -m benchmarks.search_real MODEL.onnx ... [--seeds 3] [--trials-per-task 64] [--search NAME ...]
                                 [--stock-trials-per-task 256] [--stock-batch 16]

A cell is a model and a seed: stock, then ours without trials, then ours with each named
searcher (the default one if none; names in lab.unlearned are searchers whose learning is off),
each on an empty dataset. All get the same module (the same graph recipe), evaluator and
threads. The models at checkpoints of each arm's budget are compiled and timed in turn, so a
curve is of whole models, not of a sum over tasks. The goal is 1.02 of stock's final latency.
`--stock-recipe plain` gives stock its own graph passes instead.

Each finished cell is one raw file in docs/results/stock/, written atomically; a second run
adds missing cells. The headline is the share of stock's trials after which ours reaches the
goal, a mean, for the first named searcher; it is 0 where the defaults reach the goal without
trials. What the defaults reach and what search reaches are reported separately.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.arms import Arm, compare_latency, count_tasks, mallorn_arm, stock_arm
from benchmarks.cells import Cells
from benchmarks.hosts import describe_host
from benchmarks.lab.unlearned import located
from benchmarks.prefixes import our_prefixes, stock_prefix
from benchmarks.search_real_report import lines, report
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target
from mallorn.workers.device.detect_host import detect_target

RAW: Final = Path("docs/results/stock")
RECIPE: Final = "tuned"
CHECKPOINTS: Final = (0.125, 0.25, 0.375, 0.5, 0.75, 1.0)
STOCK_CHECKPOINTS: Final = (0.5, 1.0)


def main() -> None:
    args = _arguments()
    target = detect_target()
    cells = Cells(args.raw)
    runs = {f"{model.stem}-{seed}": (model, seed) for seed in range(args.seeds) for model in args.models}
    for name, (model, seed) in runs.items():
        if name not in cells:
            cells.keep(name, _measure(args, model, seed, target))
    result = report([cells[name] for name in runs])
    if args.json:
        raw = {"benchmark": "search_real", **describe_host(), **result}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    print("\n".join(lines(result)), flush=True)


def _measure(args: argparse.Namespace, model: Path, seed: int, target: Target) -> dict[str, Any]:
    tasks = count_tasks(model, target, RECIPE)
    trials, stock_trials = args.trials_per_task * tasks, _stock_trials_per_task(args) * tasks
    _say(model, seed, f"{stock_trials} trials of stock, {args.stock_batch} a batch")
    # A stopping service may still write files: ignore errors when the folder is removed.
    with tempfile.TemporaryDirectory(prefix="mallorn-real-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        stock = stock_arm(model, target, stock_trials, seed, folder, args.stock_recipe, args.stock_batch)
        _say(model, seed, f"stock took {stock.tuning_sec:.0f} s; {trials} trials of ours")
        zero = _ours(model, target, 0, seed, folder / "zero", JobOptions().search)
        ours = {name: _ours(model, target, trials, seed, folder / name, name) for name in args.search}
        latency = _curve(model, target, args.stock_recipe, stock, zero, ours, folder)
    return {
        "model": model.stem,
        "seed": seed,
        "budget": trials,
        "target": target.attrs,
        "stock_recipe": args.stock_recipe,
        "stock_batch": args.stock_batch,
        "stock": stock.figures(),
        "zero": zero.figures(),
        "mallorn": {name: arm.figures() for name, arm in ours.items()},
        "latency_us": latency,
        **describe_host(),
    }


def _ours(model: Path, target: Target, trials: int, seed: int, folder: Path, search: str) -> Arm:
    folder.mkdir()
    options = {"recipe": RECIPE, "search": located(search)}
    arm = mallorn_arm(model, target, trials, seed, folder, options, keep_records=True)
    _say(model, seed, f"{trials} trials with {search} took {arm.total_sec:.0f} s")
    return arm


def _curve(
    model: Path,
    target: Target,
    stock_recipe: str,
    stock: Arm,
    zero: Arm,
    ours: Mapping[str, Arm],
    folder: Path,
) -> dict[str, Any]:
    """Time the whole model at each arm's checkpoints, all in turn."""
    engines = {"zero": zero.schedules}
    for share in STOCK_CHECKPOINTS:
        count = round(stock.trials * share)
        engines[f"stock@{count}"] = stock_prefix(stock.schedules, count, folder / f"stock-{count}")
    for name, arm in ours.items():
        records = arm.details["records"]
        engines |= our_prefixes(folder / name, name, target, records, CHECKPOINTS, zero.schedules)
        engines[name] = arm.schedules
    recipes = {name: stock_recipe for name in engines if name.startswith("stock")}
    return compare_latency(model, target, RECIPE, engines, folder, recipes)


def _say(model: Path, seed: int, message: str) -> None:
    print(f"{model.stem}, seed {seed}: {message}", flush=True)


def _stock_trials_per_task(args: argparse.Namespace) -> int:
    return int(args.stock_trials_per_task or args.trials_per_task)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0 on")
    parser.add_argument("--trials-per-task", type=int, default=64)
    parser.add_argument("--search", nargs="+", default=[JobOptions().search])
    parser.add_argument("--stock-trials-per-task", type=int, help="default: as many as ours")
    parser.add_argument("--stock-batch", type=int, default=64, help="stock's trials of a task at a time")
    parser.add_argument("--stock-recipe", default=RECIPE, choices=(RECIPE, "plain"))
    parser.add_argument("--raw", type=Path, default=RAW, help="the folder of finished cells")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
