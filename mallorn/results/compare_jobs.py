"""Comparison of jobs: final results, results at equal effort, and results per task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from mallorn.core.states import JobState
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.results.best_so_far_curve import CurvePoint, best_total, best_us_by_task, curve
from mallorn.results.speedup import format_speed_ratio

MODEL, TASKS = "the whole model", "the sum over tasks"
# Sums of medians whose ratio is below this do not show which job is faster.
CLOSE: Final = 1.02
# Reason why the two figures may rank jobs differently.
APART: Final = "a task that is timed alone finds data in the caches, which it often does not inside the model"


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job's results in the end and at equal effort; values are None if not timed."""

    id: str
    name: str
    state: JobState
    target: str
    model_id: str
    options: dict[str, JsonValue]
    trials: int
    failures: int
    seconds: float | None
    model_us: float | None
    interval_us: tuple[float, float] | None
    steady: bool  # whether the host was quiet when the model was timed; old reports: True
    untuned_us: float | None
    reached_us: float | None
    at_equal_trials_us: float | None
    at_equal_seconds_us: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The fastest job (None if undecided), the figure that decided, and why."""

    by: str | None
    fastest: str | None
    why: str
    note: str


def find_fastest_job(jobs: Sequence[JobResult]) -> Judgement:
    """Name the fastest job by undisturbed whole-model latencies, or else by task sums."""
    # Why the whole model's latency cannot decide; empty if it can.
    doubt = next(
        (f"the whole model of {job.id} was not timed" for job in jobs if job.model_us is None),
        next((f"the whole model of {job.id} was timed on a busy host" for job in jobs if not job.steady), ""),
    )
    criterion, other_criterion = (TASKS, MODEL) if doubt else (MODEL, TASKS)
    results = [
        (time_us, job) for job in jobs if (time_us := _latency_by_criterion(job, criterion)) is not None
    ]
    if len(results) < len(jobs):
        return Judgement(None, None, "not every job has times yet", "")
    (first_time_us, first), (second_time_us, second) = sorted(results, key=lambda result: result[0])[:2]
    if doubt:
        is_close = second_time_us <= first_time_us * CLOSE
    else:
        interval, runner_up = first.interval_us, second.interval_us
        is_close = interval is not None and runner_up is not None and runner_up[0] <= interval[1]
    note = ""
    if is_close:
        words = f"{first.id} and {second.id} are too close to tell"
    else:
        ratio = format_speed_ratio(second_time_us / first_time_us)
        words = f"{first.id} is the fastest, {ratio} than {second.id}"
        first_us = _latency_by_criterion(first, other_criterion)
        second_us = _latency_by_criterion(second, other_criterion)
        if first_us is not None and second_us is not None and first_us > second_us:
            ratio = format_speed_ratio(second_us / first_us)
            note = f"{other_criterion} says otherwise ({ratio}): {doubt or APART}"
    reason = f"judged by {criterion}{f', as {doubt}' if doubt else ''}: {words}"
    return Judgement(criterion, None if is_close else first.id, reason, note)


def _latency_by_criterion(job: JobResult, criterion: str) -> float | None:
    return job.model_us if criterion == MODEL else job.reached_us


# Options of which each must be equal for times of two jobs to compare.
TIMING: Final = ("stopping", "evaluator")


@dataclass(frozen=True)
class Side:
    """Data of one of the jobs that are compared."""

    job: JobStatus
    tasks: Sequence[TaskStatus]
    points: Sequence[CurvePoint]
    best_us: Mapping[int, float | None]  # by task: this job's own best

    @classmethod
    def of(cls, job: JobStatus, tasks: Sequence[TaskStatus], rounds: Sequence[RoundStatus]) -> "Side":
        """Build the data from what the coordinator sends about a job."""
        return cls(job, tasks, curve(rounds, tasks, job.created_at), best_us_by_task(rounds, tasks))

    @property
    def seconds(self) -> float | None:
        """Seconds from submission to the end, or to the newest point of a running job."""
        if self.job.finished_at is not None:
            return self.job.finished_at - self.job.created_at
        return self.points[-1].sec if self.points else None


@dataclass(frozen=True, slots=True)
class ComparedTask:
    """A workload's values in every job, in the jobs' order; None if a job lacks the task."""

    workload: str
    name: str
    weight: list[int | None]
    latency_us: list[float | None]
    trials: list[int | None]


@dataclass(frozen=True, slots=True)
class JobComparison:
    """Result of a comparison; lists with an entry per job are in the order of the jobs."""

    jobs: list[JobResult]
    judgement: Judgement | None
    equal_trials: int
    equal_seconds: float
    tasks: list[ComparedTask]
    warnings: list[str]


def compare(sides: Sequence[Side]) -> JobComparison:
    """Compare jobs; name none the fastest if models, targets or timing options differ."""
    trials = min(side.points[-1].trials if side.points else 0 for side in sides)
    seconds = min(side.points[-1].sec if side.points else 0.0 for side in sides)
    jobs = []
    for side in sides:
        job, timing = side.job, side.job.finish_report.latency_us.get("tuned")
        result = JobResult(
            id=job.id,
            name=job.name,
            state=job.state,
            target=job.target,
            model_id=job.model_id,
            options=job.sent_options(),
            trials=job.progress.trials,
            failures=sum(job.progress.failures.values()),
            seconds=side.seconds,
            model_us=job.median_us("tuned"),
            interval_us=None if timing is None else (timing.low, timing.high),
            steady=job.finish_report.is_undisturbed,
            untuned_us=job.median_us("untuned"),
            reached_us=side.points[-1].total_us if side.points else None,
            at_equal_trials_us=best_total(side.points, trials),
            at_equal_seconds_us=best_total(side.points, sec=seconds),
        )
        jobs.append(result)

    # One row per workload, those of the first job first.
    rows: dict[str, list[tuple[TaskStatus, float | None] | None]] = {}
    for position, side in enumerate(sides):
        for task in side.tasks:
            entry = task, side.best_us[task.index]
            rows.setdefault(task.workload, [None] * len(sides))[position] = entry
    tasks = [
        ComparedTask(
            workload=workload,
            name=next(entry[0].name for entry in row if entry is not None),
            weight=[entry and entry[0].weight for entry in row],
            latency_us=[entry and entry[1] for entry in row],
            trials=[entry and entry[0].trials for entry in row],
        )
        for workload, row in rows.items()
    ]

    warnings = []
    if len({side.job.target for side in sides}) > 1:
        warnings.append("the jobs have different targets: their times do not compare")
    timings = [[side.job.sent_options().get(key) for key in TIMING] for side in sides]
    if any(timing != timings[0] for timing in timings):
        warnings.append(
            "the jobs were timed in different ways (stopping, evaluator): their times do not compare"
        )
    if len({side.job.model_id for side in sides}) > 1:
        warnings.append("the jobs have different models: compare their tasks, not their totals")
    judgement = None if warnings else find_fastest_job(jobs)
    return JobComparison(jobs, judgement, trials, seconds, tasks, warnings)
