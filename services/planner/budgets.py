"""Round sizes, and the number of candidates that a job's budgets still allow.

With the budget `auto`, a job continues while its next trials should be worth their time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from math import ceil, inf
from typing import Final

from mallorn.core.job_options import LARGEST_ROUND
from mallorn.core.values.expected_gain import LOOK_AHEAD, WORTH, Outlook
from mallorn.services.planner.eligible_tasks import SHARE_THAT_MATTERS
from mallorn.services.planner.learning_curve_points import STANDARD_SIZE, curve_of
from mallorn.services.planner.planner_values import Forecast, JobView, TaskView

# Rounds after which a task's curve can be extrapolated.
FAIR_ROUNDS: Final = 3
# One timed round is enough if a drop of the task's latency by this share gains too little.
MOST_TO_GAIN: Final = 0.5
# Upper bound on the trials per task of a job without a budget.
MOST_A_TASK: Final = 256
SMALLEST_ROUND: Final = 4
# The first pass takes at most this share of the budget; the policy controls the rest.
FIRST_PASS_SHARE: Final = 0.5
# A budget is spent in at least this many rounds.
PULLS: Final = 48
# A task's next round grows by one standard size per this many known trials.
WELL_KNOWN_TRIALS: Final = 256
ASSUMED_SECONDS_PER_TRIAL: Final = 0.5
# Open rounds of a workload: more cost too many trials (docs/results/in_flight).
MOST_IN_FLIGHT: Final = 4
MOST_IN_FLIGHT_BY_TIME: Final = 8
# So much of a task's trials may be in flight, unless its job has a time budget.
SHARE_IN_FLIGHT: Final = 0.25
# Number of future rounds of a job that are forecast.
HORIZON: Final = 256


def round_size(job: JobView, task: TaskView, eligible: int) -> int:
    """Return a round's number of candidates.

    It is larger after many trials, or if the `eligible` tasks (those that may be tuned now)
    may have fewer rounds than may be open.
    """
    if job.round_size is not None:
        return job.round_size
    trials = task.points[-1].trials if task.points else 0
    evidence = job.usual_size * (1 + trials // WELL_KNOWN_TRIALS)
    most = MOST_IN_FLIGHT if job.seconds_left is None else MOST_IN_FLIGHT_BY_TIME
    devices = job.usual_size * ceil(job.max_open_rounds / (max(1, eligible) * most))
    affordable = max(job.usual_size, budget_in_candidates(job) // PULLS)
    return min(LARGEST_ROUND, max(evidence, devices), affordable)


def choose_first_round_size(job: JobView, part: float) -> int:
    """Return the size of a task's first round. It is only the share `part` of a usual round
    if the job has at least as many tasks as rounds that may be open."""
    standard = job.round_size or job.usual_size
    tasks = sum(not task.left_out for task in job.tasks)
    share = int(budget_in_candidates(job) * FIRST_PASS_SHARE / max(1, tasks))
    size = int(part * standard) if job.max_open_rounds <= tasks else standard
    return max(SMALLEST_ROUND, min(size, share))


def trial_limit(job: JobView) -> int | None:
    """Return the number of candidates a job may try; None if only its time limits it."""
    return auto_trial_limit(job) if job.has_auto_budget else job.trials


def budget_in_candidates(job: JobView) -> int:
    """Return the budget in candidates; for a time budget, those that fit into the time."""
    if (limit := trial_limit(job)) is not None:
        return limit
    seconds = job.seconds_per_trial or ASSUMED_SECONDS_PER_TRIAL
    return job.spent_trials + int(max(0.0, job.seconds_left or 0.0) * max(1, job.max_open_rounds) / seconds)


def seconds_per_trial(job: JobView, task: TaskView) -> float:
    """Return the mean seconds per trial of the task, else of the job, else a default."""
    return task.seconds_per_trial or job.seconds_per_trial or ASSUMED_SECONDS_PER_TRIAL


class TrialBudget:
    """Counts a job's trials, including those of open rounds and of rounds just planned."""

    def __init__(self, job: JobView) -> None:
        self._job = job
        self._spent = job.spent_trials
        self._busy_sec = [
            size * seconds_per_trial(job, task) for task in job.tasks for size in task.open_sizes
        ]

    @property
    def open_rounds(self) -> int:
        return len(self._busy_sec)

    def book_round(self, task: TaskView, size: int) -> None:
        self._spent += size
        self._busy_sec.append(size * seconds_per_trial(self._job, task))

    def remaining_candidates(self, task: TaskView) -> int:
        """Return how many more candidates of a task the job's budgets allow to plan."""
        job = self._job
        limit = trial_limit(job)
        left = LARGEST_ROUND if limit is None else limit - self._spent
        if job.task_trials is not None:
            left = min(left, job.task_trials - task.trials - task.in_flight)
        if job.seconds_left is not None:
            # One round more than workers is open so that none idles. If all are busy, it waits.
            workers = max(1, job.max_open_rounds - 1)
            wait_sec = sum(self._busy_sec) / workers if self.open_rounds >= workers else 0.0
            left = min(left, int((job.seconds_left - wait_sec) / seconds_per_trial(job, task)))
        return max(0, left)


def auto_trial_limit(job: JobView) -> int:
    """Return the most trials of a job with the budget `auto`: MOST_A_TASK for each task."""
    return MOST_A_TASK * sum(not task.left_out for task in job.tasks)


@dataclass(frozen=True, slots=True)
class ExpectedGain:
    """Weighted latency of all timed tasks, and the expected gain of each further round.

    A task's rounds are assumed to be equally likely to bring its best result: after d
    rounds without a gain, the n-th further one does so with probability 1 / (d + n), and
    its expected gain falls likewise. This overestimates gains, because they also shrink. No
    task gains more than the machine's limit allows.
    """

    total_us: float
    gains_us: tuple[float, ...]  # in descending order
    size: int  # candidates per round
    limit_us: float | None = None  # lower bound of total_us; None unless known for all tasks

    def gain_share_after(self, start: int = 0) -> float:
        """Return the share of `total_us` saved by LOOK_AHEAD trials after `start` rounds."""
        rounds = LOOK_AHEAD / self.size
        end = start + int(rounds)
        won_us = sum(self.gains_us[start:end]) + sum(self.gains_us[end : end + 1]) * (rounds % 1)
        return won_us / self.total_us if self.total_us else 0.0

    def count_worthwhile_rounds(self, least: float) -> int:
        """Return after how many rounds the next LOOK_AHEAD trials save less than `least`."""
        rounds = range(len(self.gains_us))
        return next((start for start in rounds if self.gain_share_after(start) < least), len(rounds))

    def outlook(self, trials: int) -> Outlook | None:
        """Return the forecast for `trials` more trials; None while no task has a time."""
        if not self.total_us:
            return None
        won_us = sum(self.gains_us[: trials // self.size])
        end_us = max(self.total_us - won_us, self.limit_us or 0.0)
        return Outlook(
            current_us=self.total_us,
            limit_us=self.limit_us,
            expected_us=end_us,
            gain=self.gain_share_after(),
            trials=trials,
        )


def has_enough_results(task: TaskView, forecast: Forecast, total_us: float) -> bool:
    """Return whether a task has enough results to stop it once no gain is worth its time."""
    if task.best_us is None:
        return task.weight * forecast.high_us < SHARE_THAT_MATTERS * total_us
    if task.weight * task.best_us * MOST_TO_GAIN < WORTH * total_us:
        return True
    return len(task.points) >= FAIR_ROUNDS


def expected_trials(job: JobView, expected: ExpectedGain) -> int:
    """Return how many more trials a job with the budget `auto` is expected to get."""
    worthwhile_trials = expected.count_worthwhile_rounds(WORTH) * expected.size
    return min(worthwhile_trials, max(0, auto_trial_limit(job) - job.spent_trials))


def compute_expected_gain(
    tasks: Sequence[TaskView], forecasts: Sequence[Forecast], retired: Sequence[str], size: int
) -> ExpectedGain:
    """Return the expected gain over all timed tasks; that of `retired` tasks is 0."""
    timed_tasks = [task for task in tasks if task.best_us is not None]
    gains = [
        _gains(task, forecast, size)
        for task, forecast, reason in zip(tasks, forecasts, retired, strict=True)
        if task.best_us is not None and not reason
    ]
    # A task's limit is at most its measured time.
    limits = [min(task.limit_us, task.best_us or inf) * task.weight for task in timed_tasks if task.limit_us]
    return ExpectedGain(
        total_us=sum(sorted(task.weight * (task.best_us or 0.0) for task in timed_tasks)),
        gains_us=tuple(islice(merge(*gains, reverse=True), HORIZON)),
        size=size,
        limit_us=sum(sorted(limits)) if limits and len(limits) == len(timed_tasks) else None,
    )


def _gains(task: TaskView, forecast: Forecast, size: int) -> Iterator[float]:
    """Yield the expected drop of weighted latency (us) for each further round of a task."""
    observed = curve_of(task.points, task.known_us)
    rounds = 1.0 + (observed.drought if observed else 0.0) * STANDARD_SIZE / size
    best_us, limit_us = task.best_us or 0.0, task.limit_us
    if limit_us is not None and limit_us > best_us:
        limit_us = best_us**2 / limit_us  # it is wrong by this factor, and perhaps by its square
    left_us = inf if limit_us is None else best_us - limit_us
    for extra in range(HORIZON):
        gain_us = min(left_us, forecast.gain_us * rounds / (rounds + extra))
        left_us -= gain_us
        yield task.weight * gain_us
