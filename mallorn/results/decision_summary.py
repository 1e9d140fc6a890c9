"""Summary of a job's planning decisions: latency totals, trials per task, forecasts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mallorn.core.states import JobState
from mallorn.core.values.decision_log import LoggedRound, RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.results.best_so_far_curve import best_us_before_job, lower_or_none, select_timed_tasks, total

FIRST_VISITS: Final = "first-pass"


@dataclass(frozen=True, slots=True)
class Share:
    """A task's share of a job's trials, and of the latency that they saved."""

    index: int
    name: str
    weight: int
    rounds: int
    trials: int
    trials_share: float
    gain_us: float
    gain_share: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Number of forecasts with a known result, and of those whose interval contained it."""

    judged: int
    held: int
    share: float | None


@dataclass(frozen=True, slots=True)
class TaskAtRest:
    """A task that gets no more rounds, and the reason."""

    index: int
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DecisionSummary:
    """Trials and gain by task, accuracy of the forecasts, and state of the job."""

    state: JobState
    explanation: str
    policy: str | None
    rounds: int
    trials: int
    budget: int | None
    rounds_by_policy: dict[str, int]
    gain_us: float
    total_us: float
    tasks_timed: int
    shares: list[Share]
    forecasts: Calibration
    at_rest: list[TaskAtRest]


def add_total_latencies(rounds: Iterable[RoundStatus], tasks: Sequence[TaskStatus]) -> list[LoggedRound]:
    """Return the rounds with the tasks' total latency before and after each.

    `rounds` begin with the oldest. The total is over the tasks that have a time now, and
    None as long as one of them had none. Overlapping rounds count in the order of planning.
    """
    rows = list(rounds)
    best_us = best_us_before_job(rows, tasks)
    weights = {task.index: task.weight for task in select_timed_tasks(tasks)}
    logged = []
    for row in rows:
        best_us[row.task_index] = row.previous_best_us
        before_us = total(best_us, weights)
        best_us[row.task_index] = lower_or_none(row.previous_best_us, row.best_us)
        fields = {name: getattr(row, name) for name in row.model_fields_set}
        after_us = total(best_us, weights)
        logged.append(LoggedRound(**fields, total_before_us=before_us, total_after_us=after_us))
    return logged


def summarise(job: JobStatus, tasks: Sequence[TaskStatus], rounds: Sequence[RoundStatus]) -> DecisionSummary:
    """Summarise rounds: trials and gain by task, forecasts, tasks without more rounds."""
    trials, gain_us = sum(row.trials for row in rounds), _sum_gains(rounds)
    shares = []
    for task in tasks:
        task_rounds = [row for row in rounds if row.task_index == task.index]
        task_trials, task_gain_us = sum(row.trials for row in task_rounds), _sum_gains(task_rounds)
        share = Share(
            index=task.index,
            name=task.name,
            weight=task.weight,
            rounds=len(task_rounds),
            trials=task_trials,
            trials_share=task_trials / trials if trials else 0.0,
            gain_us=task_gain_us,
            gain_share=task_gain_us / gain_us if gain_us else 0.0,
        )
        shares.append(share)
    return DecisionSummary(
        state=job.state,
        explanation=job.explanation,
        policy=job.options.policy if "policy" in job.options.model_fields_set else None,
        rounds=len(rounds),
        trials=trials,
        budget=job.trials,
        rounds_by_policy=dict(Counter(row.policy for row in rounds)),
        gain_us=gain_us,
        total_us=sum(task.weight * task.latency_us for task in tasks if task.latency_us is not None),
        tasks_timed=len(select_timed_tasks(tasks)),
        shares=sorted(shares, key=lambda share: (-share.trials, -share.gain_us, share.index)),
        forecasts=compute_calibration(rounds),
        at_rest=[TaskAtRest(task.index, task.name, task.reason) for task in tasks if task.reason],
    )


def compute_calibration(rounds: Iterable[RoundStatus]) -> Calibration:
    """Return how many forecast intervals of these rounds contained the result."""
    judged = [row.is_in_interval for row in rounds if row.is_in_interval is not None]
    held_count = sum(judged)
    return Calibration(len(judged), held_count, held_count / len(judged) if judged else None)


def _sum_gains(rounds: Iterable[RoundStatus]) -> float:
    return float(sum(row.gain_us or 0.0 for row in rounds))
