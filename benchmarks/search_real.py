"""Mallorn's defaults against stock tune_relax: what each needs until the whole model is fast.

python -m benchmarks.search_real MODEL.onnx ... [--seeds 3] [--trials-per-task 64] [--search NAME ...]

A cell is a model and a seed: stock first, then ours with each searcher that was named (the default one, if
none was), in one sitting, each on an empty dataset. All get the identical module (the same graph recipe),
evaluator, threads and budget; stock runs 64 a batch. The model is then compiled with what each arm knew at
checkpoints of its budget, and all of those are timed in turn, so a curve is of whole models and not a sum
over tasks. The goal is 1.02 of the latency that stock ends with. `--stock-recipe plain` gives stock its own
graph passes instead: each side's own defaults.

Each finished cell is one raw file in docs/results/search_real/, written at once; a second run makes what is
missing. The headline is the share of stock's trials after which ours has reached the goal, a geometric mean,
for the searcher that was named first.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.arms import Arm, compare_latency, count_tasks, mallorn_arm, stock_arm
from benchmarks.cells import keep
from benchmarks.hosts import describe_host
from benchmarks.prefixes import our_prefixes, stock_prefix
from benchmarks.search_real_report import lines, report
from mallorn.core.options import JobOptions
from mallorn.core.targets import Target
from workers.device.detect import detect_target

RAW: Final = Path("docs/results/search_real")
RECIPE: Final = "tuned"
CHECKPOINTS: Final = (0.125, 0.25, 0.375, 0.5, 0.75, 1.0)
STOCK_CHECKPOINTS: Final = (0.5, 1.0)


def main() -> None:
    args = _arguments()
    target = detect_target()
    args.raw.mkdir(parents=True, exist_ok=True)
    wanted = [(model, seed) for seed in range(args.seeds) for model in args.models]
    for model, seed in wanted:
        if not _file(args, model, seed).exists():
            _measure(args, model, seed, target)
    found = report([json.loads(_file(args, model, seed).read_text()) for model, seed in wanted])
    if args.json:
        raw = {"benchmark": "search_real", **describe_host(), **found}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    print("\n".join(lines(found)), flush=True)


def _measure(args: argparse.Namespace, model: Path, seed: int, target: Target) -> None:
    trials = args.trials_per_task * count_tasks(model, target, RECIPE)
    print(f"{model.stem}, seed {seed}: {trials} trials, stock first", flush=True)
    # What a stopped service still writes must not cost the cell.
    with tempfile.TemporaryDirectory(prefix="mallorn-real-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        stock = stock_arm(model, target, trials, seed, folder, args.stock_recipe)
        print(f"{model.stem}, seed {seed}: stock took {stock.tuning_sec:.0f} s", flush=True)
        ours = {name: _ours(model, trials, seed, folder / name, name) for name in args.search}
        latency = _curve(model, target, args.stock_recipe, stock, ours, folder)
    content = {
        "model": model.stem,
        "seed": seed,
        "budget": trials,
        "target": target.attrs,
        "stock_recipe": args.stock_recipe,
        "stock": stock.figures(),
        "mallorn": {name: arm.figures() for name, arm in ours.items()},
        "latency_us": latency,
        **describe_host(),
    }
    keep(_file(args, model, seed), content)


def _ours(model: Path, trials: int, seed: int, folder: Path, search: str) -> Arm:
    folder.mkdir()
    options = {"recipe": RECIPE, "search": search}
    arm = mallorn_arm(model, trials, seed, folder, options, keep_records=True)
    print(f"{model.stem}, seed {seed}: ours with {search} took {arm.total_sec:.0f} s", flush=True)
    return arm


def _curve(
    model: Path, target: Target, stock_recipe: str, stock: Arm, ours: Mapping[str, Arm], folder: Path
) -> dict[str, Any]:
    """The whole model's latency by arm and trials, all timed in turn."""
    engines = {}
    for share in STOCK_CHECKPOINTS:
        count = round(stock.trials * share)
        engines[f"stock@{count}"] = stock_prefix(stock.schedules, count, folder / f"stock-{count}")
    for name, arm in ours.items():
        engines |= our_prefixes(folder / name, name, target, arm.details["records"], CHECKPOINTS)
        engines[name] = arm.schedules
    recipes = {name: stock_recipe for name in engines if name.startswith("stock")}
    return compare_latency(model, target, RECIPE, engines, folder, recipes)


def _file(args: argparse.Namespace, model: Path, seed: int) -> Path:
    return Path(args.raw / f"{model.stem}-{seed}.json")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0 on")
    parser.add_argument("--trials-per-task", type=int, default=64)
    parser.add_argument("--search", nargs="+", default=[JobOptions().search])
    parser.add_argument("--stock-recipe", default=RECIPE, choices=(RECIPE, "plain"))
    parser.add_argument("--raw", type=Path, default=RAW, help="the folder of finished cells")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
