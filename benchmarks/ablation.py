"""Latency of whole models at checkpoints of the trial budget, for each arm of an ablation.

python -m benchmarks.ablation MODEL.onnx ... [--targets local JSON ...] [--threads N ...] [--arms NAME ...]
                              [--seeds 3] [--trials-per-task 64] [--stock-trials-per-task 256]
                              [--shares 0.125 0.25 0.5 1] [--json FILE]

A cell is a model, a target, an arm and a seed: one job, or one stock run, on an empty dataset.
`zero` has no trials; `chance` measures defaults, then random candidates, round-robin, without
cost model or families; `ours` is a default job; `without-PART`, `policy-gradient` (Ansor's
policy) and `search-NAME` differ from it in one option, and some names are searchers whose
learning is off (lab.unlearned); `stock-16` and `stock-64` are tune_relax with this batch size.
After tuning, the cell's models (at these shares of the budget, and the export) are timed in
turn with those of `zero` and `chance` (same seed) and onnxruntime: cells compare by ratios to
them. Tasks without a trial have the schedule of `zero`, as if the job ended then.

Each finished cell is one raw file in docs/results/ablation/, written atomically; a second run
measures missing cells and reports on all. A cell that fails (say, on a candidate too slow to
time) is stored with its error, and the run continues. Networks that were not used in
development, of 6 to 12 tasks: dense-block and fire (mostly concatenations), decoder,
recurrent, bottlenecks, mixer. Schedules of all cells are stored in build/ablation
(`--schedules`) for other benchmarks; `zero` and `chance` run again if theirs are missing. The
headline is the final latency of `ours` over that of `chance`, a geometric mean.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.ablation_arms import CHANCE, ZERO, AblationArm, all_arms
from benchmarks.ablation_report import lines, report
from benchmarks.arms import Arm, compare_latency, count_tasks, mallorn_arm, stock_arm
from benchmarks.cells import Cells
from benchmarks.checkpoints import Raw
from benchmarks.hosts import describe_host
from benchmarks.prefixes import our_prefixes, stock_prefix
from mallorn.core.targets import LOCAL, Target, parse_target
from mallorn.workers.device.detect_host import detect_target

RAW: Final = Path("docs/results/ablation")
SCHEDULES: Final = Path("build/ablation")
RECIPE: Final = "tuned"
SHARES: Final = (0.125, 0.25, 0.5, 1.0)
BESIDE: Final = (ZERO, CHANCE)  # every cell is timed in turn with these


@dataclass(frozen=True)
class Cell:
    """One run: an arm on a model for a target with a seed."""

    model: Path
    target: Target
    arm: AblationArm
    seed: int

    @property
    def name(self) -> str:
        return self.named(self.arm.name)

    def named(self, arm: str) -> str:
        """Return the name of another arm's cell; `zero` has one cell for all seeds."""
        seed = 0 if arm == ZERO else self.seed
        place = f"{self.target.attrs.get('mcpu', self.target.key)}-{self.target.num_cores}"
        return f"{self.model.stem}-{place}-{arm}-{seed}"


def main() -> None:
    args = _arguments()
    cells = Cells(args.raw)
    selected = list(_select_cells(args))
    for cell in selected:
        if missing := _missing_references(args, cell):
            print(f"{cell.name}: left for the next run, {', '.join(missing)} failed", flush=True)
        elif not _is_done(args, cells, cell):
            cells.keep(cell.name, result := _measure_or_error(args, cell))
            print(f"{cell.name}: {result.get('failed', 'done')}", flush=True)
    result = report({cell.name: cells[cell.name] for cell in selected if cell.name in cells})
    if args.json:
        raw = {"benchmark": "ablation", **describe_host(), **result}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    print("\n".join(lines(result)), flush=True)


def _select_cells(args: argparse.Namespace) -> Iterator[Cell]:
    """Yield `zero` and `chance` first, since others need them; rotate the rest by seed."""
    named = [detect_target() if text == LOCAL else parse_target(text) for text in args.targets]
    targets = [_on(target, count) for target in named for count in args.threads or [target.num_cores]]
    arms = all_arms()
    others = [arms[name] for name in args.arms if name not in BESIDE]
    for seed in range(args.seeds):
        rotated = others[seed % max(1, len(others)) :] + others[: seed % max(1, len(others))]
        for model in args.models:
            for target in targets:
                for arm in [arms[CHANCE], *rotated] if seed else [arms[ZERO], arms[CHANCE], *rotated]:
                    yield Cell(model, target, arm, seed)


def _on(target: Target, threads: int) -> Target:
    return parse_target({**target.attrs, "num-cores": threads})


def _is_done(args: argparse.Namespace, cells: Cells, cell: Cell) -> bool:
    return cell.name in cells and (cell.arm.name not in BESIDE or (args.schedules / cell.name).exists())


def _missing_references(args: argparse.Namespace, cell: Cell) -> list[str]:
    """Return the names of the reference cells of this cell that have no schedules."""
    names = [cell.named(name) for name in _references(cell)]
    return [name for name in names if not (args.schedules / name).exists()]


def _references(cell: Cell) -> list[str]:
    return [] if cell.arm.name == ZERO else [name for name in BESIDE if name != cell.arm.name]


def _measure_or_error(args: argparse.Namespace, cell: Cell) -> dict[str, Any]:
    try:
        return _measure(args, cell)
    except Exception as error:  # stored as the result of this cell
        failure = f"{type(error).__name__}: {error}"
        return {"model": cell.model.stem, "arm": cell.arm.name, "seed": cell.seed, "failed": failure}


def _measure(args: argparse.Namespace, cell: Cell) -> dict[str, Any]:
    tasks = count_tasks(cell.model, cell.target, RECIPE)
    trials = cell.arm.trials(args.trials_per_task * tasks, args.stock_trials_per_task * tasks)
    print(f"{cell.name}: {trials} trials", flush=True)
    # A stopping service may still write files: ignore errors when the folder is removed.
    with tempfile.TemporaryDirectory(prefix="mallorn-ablation-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        arm = _run(cell, trials, folder)
        shutil.copytree(arm.schedules, args.schedules / cell.name, dirs_exist_ok=True)
        engines = _engines(args, cell, arm, folder)
        latency = compare_latency(cell.model, cell.target, RECIPE, engines, folder)
    return {
        "model": cell.model.stem,
        "target": cell.target.attrs,
        "arm": cell.arm.name,
        "options": dict(cell.arm.options),
        "seed": cell.seed,
        "budget": trials,
        "tasks": tasks,
        **_figures(arm),
        "latency_us": latency,
        **describe_host(),
    }


def _run(cell: Cell, trials: int, folder: Path) -> Arm:
    if cell.arm.batch is not None:
        return stock_arm(cell.model, cell.target, trials, cell.seed, folder, RECIPE, cell.arm.batch)
    options = {"recipe": RECIPE, **cell.arm.options}
    return mallorn_arm(cell.model, cell.target, trials, cell.seed, folder, options, keep_records=True)


def _engines(args: argparse.Namespace, cell: Cell, arm: Arm, folder: Path) -> dict[str, Path]:
    """Return schedules to time: the arm's at its checkpoints and end, and the references'."""
    engines = {name: args.schedules / cell.named(name) for name in _references(cell)}
    name = cell.arm.name
    if cell.arm.batch is not None:
        for count in (round(arm.trials * share) for share in args.shares):
            engines[f"{name}@{count}"] = stock_prefix(arm.schedules, count, folder / f"first-{count}")
    elif arm.trials:
        records = arm.details["records"]
        engines |= our_prefixes(folder, name, cell.target, records, args.shares, engines[ZERO])
    return engines | {name: arm.schedules}


def _figures(arm: Arm) -> dict[str, Any]:
    """Return a run's figures for the report: seconds, failures, and all trials in short."""
    records: list[Raw] = arm.details.get("records", [])
    workloads = list(dict.fromkeys(record["workload"] for record in records))
    trials = [
        [
            round(record["at_sec"], 2),
            workloads.index(record["workload"]),
            record["latency_us"],
            record["run_ms"],
        ]
        for record in records
    ]
    return {
        "trials": arm.trials,
        "failures": arm.failures,
        "tuning_sec": arm.tuning_sec,
        "total_sec": arm.total_sec,
        "workloads": workloads,
        "curve": trials,  # seconds since submission, task, latency in us, ms on the device
        "origins": [record["origin"] for record in records],
        "model_contests": arm.details.get("report", {}).get("model_contests"),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--targets", nargs="+", default=[LOCAL], metavar="TARGET")
    parser.add_argument("--threads", nargs="+", type=int, help="of each target; its own by default")
    arms = list(all_arms())
    parser.add_argument("--arms", nargs="+", default=arms, choices=arms, metavar="ARM", help=", ".join(arms))
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0 on")
    parser.add_argument("--trials-per-task", type=int, default=64)
    parser.add_argument("--stock-trials-per-task", type=int, default=256)
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES, help="of the budget, to look at")
    parser.add_argument("--raw", type=Path, default=RAW, help="the folder of finished cells")
    parser.add_argument("--schedules", type=Path, default=SCHEDULES, help="where cells leave theirs")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
