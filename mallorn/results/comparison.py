"""Jobs beside one another: where each ended, what each had at equal effort, and task by task."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mallorn.results.history import Point, at_seconds, at_trials, curve, reached
from mallorn.results.judging import interval, judge, steady

Row = dict[str, Any]
# Whoever differs in one of these has times that do not compare.
TIMING: Final = ("stopping", "evaluator")


@dataclass(frozen=True)
class Side:
    """All that is compared of one job."""

    job: Row
    tasks: Sequence[Row]
    points: Sequence[Point]
    best_us: Mapping[int, float | None]  # by task: what this job had, whatever another job found later

    @classmethod
    def of(cls, job: Row, tasks: Sequence[Row], rounds: Sequence[Row]) -> "Side":
        """A job as the API tells it."""
        return cls(job, tasks, curve(rounds, tasks, job["created_at"]), reached(rounds, tasks))

    @property
    def seconds(self) -> float | None:
        """From submit to the end; of a job that goes on, to its newest point."""
        if self.job["finished_at"] is not None:
            return float(self.job["finished_at"] - self.job["created_at"])
        return self.points[-1].sec if self.points else None


def compare(sides: Sequence[Side]) -> Row:
    """All of them as one JSON document; where a list has an entry a job, they stand in the order given."""
    trials = min(side.points[-1].trials if side.points else 0 for side in sides)
    seconds = min(side.points[-1].sec if side.points else 0.0 for side in sides)
    jobs = [_standing(side, trials, seconds) for side in sides]
    warnings = _warnings(sides)
    return {
        "jobs": jobs,
        "judgement": None if warnings else judge(jobs),
        "equal_trials": trials,
        "equal_seconds": seconds,
        "tasks": _tasks(sides),
        "warnings": warnings,
    }


def _standing(side: Side, trials: int, seconds: float) -> Row:
    job, progress = side.job, side.job["progress"]
    return {
        **{key: job[key] for key in ("id", "name", "state", "target", "model_id", "options")},
        "trials": progress["trials"],
        "failures": sum(progress["failures"].values()),
        "seconds": side.seconds,
        "model_us": measured_us(job, "tuned"),
        "interval_us": interval(job),
        "steady": steady(job),
        "untuned_us": measured_us(job, "untuned"),
        "reached_us": side.points[-1].total_us if side.points else None,
        "at_equal_trials_us": at_trials(side.points, trials),
        "at_equal_seconds_us": at_seconds(side.points, seconds),
    }


def measured_us(job: Mapping[str, Any], engine: str) -> float | None:
    """The median of the whole model in an engine, where the finish timed it."""
    timing = ((job["report"] or {}).get("latency_us") or {}).get(engine)
    return None if timing is None else float(timing["median"])


def _tasks(sides: Sequence[Side]) -> list[Row]:
    """One row a workload, those of the first job first; null where a job has no such task."""
    found: dict[str, list[Row | None]] = {}
    for at, side in enumerate(sides):
        for task in side.tasks:
            own = {**task, "latency_us": side.best_us[task["index"]]}
            found.setdefault(task["workload"], [None] * len(sides))[at] = own
    return [_task(workload, tasks) for workload, tasks in found.items()]


def _task(workload: str, tasks: Sequence[Row | None]) -> Row:
    known = next(task for task in tasks if task is not None)
    return {
        "workload": workload,
        "name": known["name"],
        **{key: [task and task[key] for task in tasks] for key in ("weight", "latency_us", "trials")},
    }


def _warnings(sides: Sequence[Side]) -> list[str]:
    """Why the times of these jobs say little beside one another."""
    said = []
    if len({side.job["target"] for side in sides}) > 1:
        said.append("the jobs have different targets: their times do not compare")
    if len({_timing(side.job) for side in sides}) > 1:
        said.append("the jobs were timed in different ways (stopping, evaluator): their times do not compare")
    if len({side.job["model_id"] for side in sides}) > 1:
        said.append("the jobs have different models: compare their tasks, not their totals")
    return said


def _timing(job: Row) -> str:
    return json.dumps({key: job["options"].get(key) for key in TIMING}, sort_keys=True)
