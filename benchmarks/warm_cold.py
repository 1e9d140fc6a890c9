"""What a pretrained base saves: a network tuned with and without a base that never saw it.

python -m benchmarks.warm_cold MODEL.onnx ... --from PATH [--seeds 3] [--trials-per-task 64]

PATH holds measurements of other networks: a data directory, an export of a dataset, or a
Parquet file. For each model, one base per operator is fitted to them, without workloads that
the model shares. A cell is a model and a seed: a job without bases (cold) and one with them
(warm), in an order that alternates by seed, with equal seed, budget, module and threads, on
empty datasets. Models at checkpoints of both are timed in turn.

Each finished cell is one raw file in docs/results/warm_cold/, written atomically; a second run
adds missing cells. The headline is the share of the cold job's trials after which the warm one
is within 1.05 of the cold one's final latency, a geometric mean over models and seeds.
"""

import argparse
import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.arms import Arm, compare_latency, mallorn_arm, task_keys
from benchmarks.cells import Cells
from benchmarks.held_out import base_without
from benchmarks.hosts import describe_host
from benchmarks.prefixes import our_prefixes
from benchmarks.warm_cold_report import ARMS, lines, report
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target
from mallorn.workers.device.detect_host import detect_target

RAW: Final = Path("docs/results/warm_cold")
RECIPE: Final = "tuned"
CHECKPOINTS: Final = (0.0625, 0.125, 0.1875, 0.25, 0.375, 0.5, 0.75, 1.0)


def main() -> None:
    args = _arguments()
    target = detect_target()
    cells = Cells(args.raw)
    for model in args.models:
        missing = [seed for seed in range(args.seeds) if f"{model.stem}-{seed}" not in cells]
        if missing:
            _measure_all(args, model, missing, target, cells)
    result = report([cells[f"{model.stem}-{seed}"] for model in args.models for seed in range(args.seeds)])
    if args.json:
        raw = {"benchmark": "warm_cold", **describe_host(), **result}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    print("\n".join(lines(result)), flush=True)


def _measure_all(
    args: argparse.Namespace, model: Path, seeds: list[int], target: Target, cells: Cells
) -> None:
    """Measure all seeds with the same bases: each job copies the base data directory."""
    # A stopping service may still write files: ignore errors when the folder is removed.
    with tempfile.TemporaryDirectory(prefix="mallorn-warm-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        keys = task_keys(model, target, RECIPE)
        bases = base_without(set(keys), args.source, args.base, target, folder / "base")
        for base in bases:
            print(f"{model.stem}: {base.name} of {base.rows} rows of {base.tasks} tasks", flush=True)
        facts: dict[str, Any] = {
            "model": model.stem,
            "budget": args.trials_per_task * len(keys),
            "target": target.attrs,
            "cost_model": {"cold": args.cold_model, "warm": args.warm_model},
            "bases": [asdict(base) | {"name": str(base.name)} for base in bases],
        }
        for seed in seeds:
            figures = _measure(args, model, seed, target, facts["budget"], folder)
            cells.keep(f"{model.stem}-{seed}", facts | {"seed": seed} | figures | describe_host())


def _measure(
    args: argparse.Namespace, model: Path, seed: int, target: Target, trials: int, scratch: Path
) -> dict[str, Any]:
    folder = scratch / str(seed)
    shutil.copytree(scratch / "base", folder / "warm" / "data")
    models = {"cold": args.cold_model, "warm": args.warm_model}
    arms: dict[str, Arm] = {}
    for name in ARMS if seed % 2 == 0 else ARMS[::-1]:
        (folder / name).mkdir(exist_ok=True)
        options = {"recipe": RECIPE, "cost_model": models[name]}
        arms[name] = mallorn_arm(model, target, trials, seed, folder / name, options, keep_records=True)
        print(f"{model.stem}, seed {seed}: {name} took {arms[name].total_sec:.0f} s", flush=True)
    engines: dict[str, Path] = {}
    for name, arm in arms.items():
        engines |= our_prefixes(folder / name, name, target, arm.details["records"], CHECKPOINTS)
    latency = compare_latency(model, target, RECIPE, engines, folder)
    return {"arms": {name: arm.figures() for name, arm in arms.items()}, "latency_us": latency}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--from", dest="source", type=Path, required=True, help="measurements of others")
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0 on")
    parser.add_argument("--trials-per-task", type=int, default=64)
    parser.add_argument("--base", default="xgboost", help="the cost model that is pre-trained")
    parser.add_argument("--warm-model", default="residual", help="the cost model of the job with the base")
    parser.add_argument("--cold-model", default=JobOptions().cost_model, help="that of the other")
    parser.add_argument("--raw", type=Path, default=RAW, help="the folder of finished cells")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
