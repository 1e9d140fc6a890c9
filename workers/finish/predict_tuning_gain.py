"""Predict how much trials would speed up a model that was tuned without any.

Trials close a share of the gap between a first guess (a schedule chosen without trials) and
the hardware limit, on a log scale. The share is estimated per operator from earlier jobs in
the same measuring context and the networks in EARLIER.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Final

import numpy as np

from mallorn.core.values.expected_gain import TaskGap, TuningGain
from mallorn.core.values.machine import Machine, machine_limit_us
from mallorn.db.repositories.jobs import Jobs
from mallorn.workers.finish.choose_winner import Winner
from mallorn.workers.finish.step_log import ReportDraft
from mallorn.workers.hardware_probe.run import load_measured_machine
from mallorn.workers.interfaces.tensor_arguments import unpack_arguments
from mallorn.workers.process.leased_work import LeasedStage

# One entry per network and machine: docs/results/tuning_gain.json, by `python -m
# benchmarks.tuning_gain`.
EARLIER: Final = tuple(TaskGap(initial_gap=gap, closed_gap=won) for gap, won in (
    (0.121, 0.016), (0.575, 0.408), (0.401, 0.029), (0.681, 0.174),
    (0.381, 0.06), (0.077, 0.001), (0.305, 0.064), (0.306, 0.034),
    (0.113, 0.021), (0.169, 0.011), (0.261, 0.0), (0.121, 0.076),
    (0.104, 0.019), (0.095, 0.009), (0.317, 0.153), (0.095, 0.017),
    (0.158, 0.009), (0.129, 0.013), (0.149, 0.044), (0.022, 0.003),
    (0.022, 0.016), (0.014, 0.01), (0.013, 0.006), (0.014, 0.014),
    (0.027, 0.018), (0.03, 0.006), (0.002, 0.001),
))  # fmt: skip
# Trials of these networks, fewest trials per task, seconds per trial with job overhead.
TRIALS: Final = 1000
FEWEST: Final = 10
TRIAL_SEC: Final = 0.33
MISSED: Final = 0.1  # share of the observed values below and above the interval
NAMED: Final = 3  # tasks with the largest gain that the report names


@dataclass(frozen=True, slots=True)
class GuessedTask:
    """A task with a first guess (a schedule without trials), and its time per model run."""

    name: str
    us: float
    gap: TaskGap

    @classmethod
    def of(cls, winner: Winner, machine: Machine) -> "GuessedTask | None":
        """Return the task and its guess's gap to the hardware limit; None without times."""
        task, workload = winner.contest.task, winner.contest.workload
        guess_us, best_us = (winner.guess or winner).latency_us, winner.latency_us
        if guess_us is None or best_us is None:
            return None
        least_us = machine_limit_us(machine, workload.flops, unpack_arguments(workload.args).args)
        gap = gap_closed(workload.op, guess_us, best_us, least_us)
        return cls(task.name, task.weight * guess_us, gap)


def fill_trials_gain(
    stage: LeasedStage, winners: Sequence[Winner], tuned_us: float, report: ReportDraft
) -> None:
    """Fill in the report how much of the gap to the hardware limit trials closed or, for a
    job without trials, the gain that they would bring. Do nothing if tasks or machine were
    not timed, or if other load disturbed the machine's probe."""
    machine = load_measured_machine(stage.runtime, stage.job.id)
    if machine is None or machine.disturbed or not stage.options.needs_measurements:
        return
    tasks = [task for winner in winners if (task := GuessedTask.of(winner, machine)) is not None]
    if not tasks:
        return
    if stage.job.trials != 0:
        report.gaps = [task.gap for task in tasks]
        return
    with stage.runtime.database.session() as session:
        reports = Jobs(session).reports(stage.job.context_id)
    gaps = [
        gap
        for job_report, _ in reports
        if (job_report.trials or 0) >= FEWEST * len(job_report.gaps)
        for gap in job_report.gaps
    ]
    paces = [job_sec / job_report.trials for job_report, job_sec in reports if job_report.trials]
    trial_sec = median(paces) if paces else TRIAL_SEC
    report.tuning_gain = predict_tuning_gain(tasks, gaps, tuned_us, trial_sec)


def gap_closed(op: str, guess_us: float, best_us: float, limit_us: float | None) -> TaskGap:
    """Return a first guess's gap to the hardware limit, and how much of it the best time
    closed, as natural logs of time ratios; 0 if the limit is unknown or beaten."""
    gap = log(guess_us / limit_us) if limit_us else 0.0
    return TaskGap(operator=op, initial_gap=max(0.0, gap), closed_gap=max(0.0, log(guess_us / best_us)))


def predict_tuning_gain(
    tasks: Sequence[GuessedTask],
    seen: Sequence[TaskGap],
    whole_us: float,
    trial_sec: float = TRIAL_SEC,
    earlier: Sequence[TaskGap] = EARLIER,
) -> TuningGain:
    """Predict by which share of its time trials would speed up a model, with an interval.

    `seen` are gaps to the hardware limit of other jobs' tasks in this measuring context;
    `whole_us` is the time of one model run. Errors of tasks are assumed to be correlated,
    so they do not cancel out.
    """
    ops = {task.gap.operator for task in tasks}
    shares = {op: share_closed([*earlier, *(gap for gap in seen if gap.operator == op)]) for op in ops}
    # Microseconds saved per run if trials close these shares of each task's gap.
    won_us = {
        task.name: [task.us * (1 - exp(-share * task.gap.initial_gap)) for share in shares[task.gap.operator]]
        for task in tasks
    }
    total_us = max(whole_us, sum(task.us for task in tasks))
    low, gain, high = (sum(column) / total_us for column in zip(*won_us.values(), strict=True))
    best_tasks = sorted(tasks, key=lambda task: -won_us[task.name][1])[:NAMED]
    return TuningGain(
        gain=gain,
        low=low,
        high=high,
        trials=TRIALS,
        seconds=TRIALS * trial_sec,
        tasks=[task.name for task in best_tasks],
        unseen_operators=sorted({task.gap.operator for task in best_tasks} - {gap.operator for gap in seen}),
    )


def share_closed(rows: Sequence[TaskGap]) -> tuple[float, float, float]:
    """Return which share of a gap to the hardware limit trials close: low end of the
    interval, mean and high end. Rows are weighted by gaps, as small ones are noisy."""
    pairs = sorted((row.share, row.initial_gap) for row in rows if row.initial_gap)
    shares, weights = zip(*pairs, strict=True)
    mean = float(np.average(shares, weights=weights))
    cumulative = np.cumsum(weights) / sum(weights)
    low, high = (shares[index] for index in np.searchsorted(cumulative, (MISSED, 1 - MISSED)))
    return min(low, mean), mean, max(high, mean)
