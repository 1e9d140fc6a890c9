"""Measures thousands of candidates of some tasks, task by task and target by target, and reports the gaps.

python -m benchmarks.oracle TASKS.json --data DIR --target TEXT [--candidates 4000] [--minutes 60]

A second start goes on where the first was broken off; `--minutes 0` reports what is there.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.oracle.report import report
from benchmarks.oracle.running import Cell, run_all
from benchmarks.oracle.tasks import read_tasks
from mallorn.core.targets import Target
from mallorn.workers.hardware_probe.measure_machine import probe_host_machine


def main() -> None:
    """Measure, decide each task's contest, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", type=Path, help="what benchmarks.oracle.tasks wrote")
    parser.add_argument("--data", type=Path, required=True, help="where raw files are kept")
    parser.add_argument("--target", action="append", default=[], help="as JSON; several times for several")
    parser.add_argument("--candidates", type=int, default=4000, help="of a task on a target")
    parser.add_argument("--minutes", type=float, default=60.0, help="for everything")
    parser.add_argument("--cores", action="append", help="of one stream, as 0,1; several times for several")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="raw figures and the headline")
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    cores = [[int(core) for core in text.split(",")] for text in args.cores or ["0,1"]]
    if args.minutes > 0:
        run_all(list(_cells(args)), cores, args.minutes * 60)
    report(args.data, args.json, measured=args.minutes > 0)


def _cells(args: argparse.Namespace) -> Iterator[Cell]:
    """Every task on every target, whose machine is measured before streams disturb each other."""
    tasks = read_tasks(args.tasks)
    for target in map(Target, args.target):
        machine = probe_host_machine(target)
        for model, task in tasks:
            yield Cell(model, task, target, machine, args.data, args.candidates, args.seed)


if __name__ == "__main__":
    main()
