"""What each part of the search brings: whole models at checkpoints of the budget, arm by arm.

python -m benchmarks.ablation MODEL.onnx ... [--targets local JSON ...] [--threads N ...] [--arms NAME ...]
                              [--seeds 3] [--trials-per-task 64] [--stock-trials-per-task 256]
                              [--shares 0.125 0.25 0.5 1] [--json FILE]

A cell is a model, a target, an arm and a seed: one job, or one run of stock, on an empty dataset. `zero` has
no trials; `chance` takes the defaults and then random candidates, without model, task by task, without
families; `ours` is a job as it is; `without-PART`, `policy-gradient` (Ansor's, in place of dynatune) and
`search-NAME` (in place of the portfolio) differ from it in one choice, and some names are learners that are
switched off (lab.unlearned); `stock-16` and `stock-64` are tune_relax with so
many trials a batch. After its tuning the cell's whole models, at these shares of the budget and as the job
hands them out, are timed in turn with that of `zero`, that of `chance` with the same seed, and onnxruntime:
cells compare by ratios to them. A task that has no trial yet has the schedule of `zero`, as it would if the
job ended there.

Each finished cell is one raw file in docs/results/ablation/, written at once; a second run makes what is
missing, and reports on all that is there. A cell that fails (a candidate too slow to be timed, say) is kept
with its error, and the others go on. Networks that nobody tuned for, of 6 to 12 tasks: dense-block and
fire, which concatenations rule, decoder, recurrent, bottlenecks and mixer. Every cell's schedules lie in
build/ablation (`--schedules`), for other benchmarks to time; cells are timed beside those of `zero` and
`chance`, which are made again if theirs are gone. The headline is the latency that ours ends with over
chance's, a geometric mean.
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
from workers.device.detect_host import detect_target

RAW: Final = Path("docs/results/ablation")
SCHEDULES: Final = Path("build/ablation")
RECIPE: Final = "tuned"
SHARES: Final = (0.125, 0.25, 0.5, 1.0)
BESIDE: Final = (ZERO, CHANCE)  # every cell is timed beside these


@dataclass(frozen=True)
class Cell:
    """One arm on one model for one target with one seed."""

    model: Path
    target: Target
    arm: AblationArm
    seed: int

    @property
    def name(self) -> str:
        return self.named(self.arm.name)

    def named(self, arm: str) -> str:
        """The cell of another arm beside this one; there is one `zero` for all seeds."""
        seed = 0 if arm == ZERO else self.seed
        place = f"{self.target.attrs.get('mcpu', self.target.key)}-{self.target.num_cores}"
        return f"{self.model.stem}-{place}-{arm}-{seed}"


def main() -> None:
    args = _arguments()
    cells = Cells(args.raw)
    wanted = list(_wanted(args))
    for cell in wanted:
        if missing := _not_there(args, cell):
            print(f"{cell.name}: left for the next run, {', '.join(missing)} failed", flush=True)
        elif not _is_done(args, cells, cell):
            cells.keep(cell.name, found := _measured_or_failed(args, cell))
            print(f"{cell.name}: {found.get('failed', 'done')}", flush=True)
    found = report({cell.name: cells[cell.name] for cell in wanted if cell.name in cells})
    if args.json:
        raw = {"benchmark": "ablation", **describe_host(), **found}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    print("\n".join(lines(found)), flush=True)


def _wanted(args: argparse.Namespace) -> Iterator[Cell]:
    """What the others are timed beside comes first; the order of the rest turns from seed to seed."""
    named = [detect_target() if text == LOCAL else parse_target(text) for text in args.targets]
    targets = [_on(target, count) for target in named for count in args.threads or [target.num_cores]]
    arms = all_arms()
    rest = [arms[name] for name in args.arms if name not in BESIDE]
    for seed in range(args.seeds):
        turned = rest[seed % max(1, len(rest)) :] + rest[: seed % max(1, len(rest))]
        for model in args.models:
            for target in targets:
                for arm in [arms[CHANCE], *turned] if seed else [arms[ZERO], arms[CHANCE], *turned]:
                    yield Cell(model, target, arm, seed)


def _on(target: Target, threads: int) -> Target:
    return parse_target({**target.attrs, "num-cores": threads})


def _is_done(args: argparse.Namespace, cells: Cells, cell: Cell) -> bool:
    return cell.name in cells and (cell.arm.name not in BESIDE or (args.schedules / cell.name).exists())


def _not_there(args: argparse.Namespace, cell: Cell) -> list[str]:
    """What a cell would be timed beside and has no schedules."""
    names = [cell.named(name) for name in _beside(cell)]
    return [name for name in names if not (args.schedules / name).exists()]


def _beside(cell: Cell) -> list[str]:
    return [] if cell.arm.name == ZERO else [name for name in BESIDE if name != cell.arm.name]


def _measured_or_failed(args: argparse.Namespace, cell: Cell) -> dict[str, Any]:
    try:
        return _measured(args, cell)
    except Exception as error:  # whatever it is, it is this cell's
        told = f"{type(error).__name__}: {error}"
        return {"model": cell.model.stem, "arm": cell.arm.name, "seed": cell.seed, "failed": told}


def _measured(args: argparse.Namespace, cell: Cell) -> dict[str, Any]:
    tasks = count_tasks(cell.model, cell.target, RECIPE)
    trials = cell.arm.trials(args.trials_per_task * tasks, args.stock_trials_per_task * tasks)
    print(f"{cell.name}: {trials} trials", flush=True)
    # What a stopped service still writes must not cost the cell.
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
    """What is timed in turn: the arm at its checkpoints and in the end, and what it is timed beside."""
    engines = {name: args.schedules / cell.named(name) for name in _beside(cell)}
    name = cell.arm.name
    if cell.arm.batch is not None:
        for count in (round(arm.trials * share) for share in args.shares):
            engines[f"{name}@{count}"] = stock_prefix(arm.schedules, count, folder / f"first-{count}")
    elif arm.trials:
        records = arm.details["records"]
        engines |= our_prefixes(folder, name, cell.target, records, args.shares, engines[ZERO])
    return engines | {name: arm.schedules}


def _figures(arm: Arm) -> dict[str, Any]:
    """What a report may ask of a run: seconds, failures, and every trial in a few words."""
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
        "inside_the_model": arm.details.get("report", {}).get("inside_the_model"),
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
