"""How well a second measurement reproduces the order of the first: the effect of noise.

python -m benchmarks.repeats [--data PATH PATH] [--json FILE]

Per task, for candidates in both recordings: the share of all pairs, and of those over 3 %
apart, that the second orders as the first does, and the median deviation of its times from the
first's beyond the task's shift. A model that knew true times would order a recording better,
as only one of the two is noisy; little, where the deviation is small.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.costmodels.rows import load
from benchmarks.hosts import describe_host
from benchmarks.lab.rounds import APART
from mallorn.core.errors import InvalidRequest, MallornError
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.research.pretraining.training_data import TaskData

FEWEST: Final = 8  # candidates in both recordings; tasks with fewer are skipped


@dataclass(frozen=True, slots=True)
class Repeated:
    """Agreement of the two measurements of one task."""

    task: str
    candidates: int
    pairs: float
    pairs_apart: float
    deviation: float  # median of the absolute deviations, in log units


def main() -> None:
    """Compare all tasks of the two recordings, and print the figures."""
    options = _arguments()
    try:
        first, second = (load(path).training_data.tasks for path in options.data)
        results = repeated(first, second)
    except MallornError as error:
        sys.exit(f"{error.message}\n{error.hint}")
    for each in results:
        print(
            f"{each.task:40}{each.candidates:5}{each.pairs:8.3f}{each.pairs_apart:8.3f}{each.deviation:8.1%}"
        )
    summary = headline(results)
    if options.json:
        raw = {"headline": summary, "tasks": [asdict(each) for each in results]} | describe_host()
        options.json.write_text(json.dumps(raw, indent=1) + "\n")
    print(summary)


def repeated(first: Sequence[TaskData], second: Sequence[TaskData]) -> list[Repeated]:
    """Compare tasks of equal workload and target. Raises InvalidRequest if there are none."""
    others = {(task.workload, task.target): task for task in second}
    pairs = [(task, others.get((task.workload, task.target))) for task in first]
    compared = [_compare(task, other) for task, other in pairs if other is not None]
    if not (valid := [each for each in compared if each is not None]):
        raise InvalidRequest(
            f"no task has {FEWEST} candidates in both recordings", hint="record the same model twice"
        )
    return valid


def headline(found: Sequence[Repeated]) -> str:
    """Return the means over tasks as text."""
    pairs, apart = (np.nanmean([getattr(each, name) for each in found]) for name in ("pairs", "pairs_apart"))
    deviation = np.median([each.deviation for each in found])
    return (
        f"pairs that a second measurement has in order, mean of {len(found)} tasks: {pairs:.3f}, "
        f"{apart:.3f} of those more than 3 % apart; median deviation {deviation:.1%}"
    )


def _compare(task: TaskData, other: TaskData) -> Repeated | None:
    second_us = {trial.candidate: trial.time_us for trial in other.trials}
    times = [
        (one, two)
        for trial in task.trials
        if (one := trial.time_us) is not None and (two := second_us.get(trial.candidate)) is not None
    ]
    if len(times) < FEWEST:
        return None
    logs = -np.log(np.array(times, dtype=np.float64))
    ones, others = (logs[:, column].astype(np.float32) for column in (0, 1))
    one_group, shift = np.zeros(len(times), dtype=np.int64), logs[:, 0] - logs[:, 1]
    return Repeated(
        f"{task.op} {task.workload[:8]}",
        len(times),
        pairs=pairwise_accuracy(others, ones, one_group),
        pairs_apart=pairwise_accuracy(others, ones, one_group, tie=APART),
        deviation=float(np.median(np.abs(shift - np.median(shift)))),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs=2, default=("recorded", "benchmarks/data/costmodels"), metavar="PATH")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
