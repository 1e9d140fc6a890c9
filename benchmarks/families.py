"""Compares family groupings on real TVM, by trials and seconds of tuning.

python -m benchmarks.families MODEL.onnx ... [--seeds 3] [--trials-per-task 48] [--json FILE]

A cell is a model, a seed and a grouping: one job on a new service and an empty dataset,
stopped when tuning ends. The order of groupings rotates by seed. Finished cells are raw files
in docs/results/families/; a second run adds missing ones. The headline is the trials that the
best grouping needs, over those of `none`, to come within 1.05 of the best weighted total
latency of any run of the model; a geometric mean over models and seeds.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.arms import count_tasks
from benchmarks.cells import Cells
from benchmarks.families_report import GROUPINGS, Cell, lines, report
from benchmarks.fresh import fresh_stack
from benchmarks.hosts import describe_host
from mallorn.cli.wait_until_tuned import wait_until_tuned
from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import Target
from mallorn.core.values.dataset import Record
from mallorn.job import Job
from mallorn.local_service import wait_for_device
from mallorn.workers.device.detect_host import detect_target

RAW: Final = Path("docs/results/families")
RECIPE: Final = "tuned"


def main() -> None:
    args = _arguments()
    target = detect_target()
    cells = Cells(args.raw)
    for model in args.models:
        missing = [cell for cell in _cells(model, args.seeds) if not _is_measured(args, cells, cell)]
        trials = count_tasks(model, target, RECIPE) * args.trials_per_task if missing else 0
        for cell in missing:
            _measure(args, model, target, trials, cell, cells)
    raw = [cells[cell.name] for model in args.models for cell in _cells(model, args.seeds)]
    result = report(raw)
    if args.json:
        args.json.write_text(
            json.dumps({"benchmark": "families", **describe_host(), **result}, indent=1) + "\n"
        )
    print("\n".join(lines(result)), flush=True)


def _cells(model: Path, seeds: int) -> Iterator[Cell]:
    """Yield cells by seed; rotate groupings, so that none always has the cool machine."""
    for seed in range(seeds):
        first = seed % len(GROUPINGS)
        for grouping in GROUPINGS[first:] + GROUPINGS[:first]:
            yield Cell(model.stem, seed, grouping)


def _is_measured(args: argparse.Namespace, cells: Cells, cell: Cell) -> bool:
    if cell.name not in cells:
        return False
    if (trials := cells[cell.name]["trials_per_task"]) != args.trials_per_task:
        problem = f"{cell.name} in {args.raw} was measured with {trials} trials a task"
        raise InvalidRequest(problem, hint="name another folder with --raw, or measure with as many")
    return True


def _measure(
    args: argparse.Namespace, model: Path, target: Target, trials: int, cell: Cell, cells: Cells
) -> None:
    print(f"{cell.name}: {trials} trials", flush=True)
    # A stopping service may still write files: ignore errors when the folder is removed.
    with tempfile.TemporaryDirectory(prefix="mallorn-families-", ignore_cleanup_errors=True) as scratch:
        figures = _tune(
            model, target, trials, cell, Path(scratch), {"policy": args.policy} if args.policy else {}
        )
    settings = {"trials_per_task": args.trials_per_task, "budget": trials, "target": target.attrs}
    cells.keep(cell.name, cell.facts() | settings | figures | describe_host())
    print(f"{cell.name}: {len(figures['trials'])} trials in {figures['tuning_sec']:.0f} s", flush=True)


def _tune(
    model: Path, target: Target, trials: int, cell: Cell, folder: Path, options: dict[str, Any]
) -> dict[str, Any]:
    options = {"recipe": RECIPE, "families": cell.grouping, **options}
    with fresh_stack(folder) as stack:
        wait_for_device(stack)
        job = stack.api.tune(model, target.text, trials=trials, seed=cell.seed, **options)
        wait_until_tuned(job, f"less {folder}/logs/worker.log")
        records = [row for row in stack.api.records(job=job.id, page_size=1000) if row.kind == "trial"]
        return _figures(job, records[::-1])


def _figures(job: Job, records: list[Record]) -> dict[str, Any]:
    """Return the report's figures, families with their reasons, and rank statistics."""
    tasks = job.tasks()
    index = {task.workload: task.index for task in tasks}
    rounds = list(job.rounds(order="oldest"))
    start = min(row.started_at for row in rounds if row.started_at)
    task_fields = {"index", "name", "weight", "workload", "family", "family_why"}
    round_fields = {"index", "task_index", "trials", "cost_model_version", "seconds", "stats"}
    return {
        "job_options": job.status.sent_options(),
        "tuning_sec": max(row.created_at for row in records) - start,
        "tasks": [task.model_dump(mode="json", include=task_fields) for task in tasks],
        "trials": [[r.created_at - start, index[r.workload], r.latency_us] for r in records],
        "rounds": [row.model_dump(mode="json", include=round_fields) for row in rounds],
        "moves": [event.payload for event in job.events() if event.kind == "family_changed"],
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0 on")
    parser.add_argument("--trials-per-task", type=int, default=48)
    parser.add_argument("--policy", help="default: the service's own")
    parser.add_argument("--raw", type=Path, default=RAW, help="the folder of finished cells")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
