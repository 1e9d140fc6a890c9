"""The size of a round, and how many candidates the budgets still allow.

The budget `auto`: a job goes on while its next trials are expected to be worth their seconds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from math import ceil, inf
from typing import Final

from mallorn.core.job_options import LARGEST_ROUND
from mallorn.core.values.expected_gain import LOOK_AHEAD, WORTH, Outlook
from services.planner.belief import Forecast
from services.planner.eligible_tasks import SHARE_THAT_MATTERS
from services.planner.learning_curve_points import STANDARD_SIZE, curve
from services.planner.planner_values import JobView, TaskView

# So many rounds show how a task's curve goes on.
FAIR_ROUNDS: Final = 3
# A first time tells enough of a task that would be worth too little even if it lost this share of it.
MOST_TO_GAIN: Final = 0.5
# Whatever is expected, a job ends after so many trials a task.
MOST_A_TASK: Final = 256
SMALLEST_ROUND: Final = 4
ROUND_SIZE: Final = 16
# The first pass takes at most this share of the budget, so that the policy has something to steer.
FIRST_PASS_SHARE: Final = 0.5
# A budget is spent in at least this many rounds, however well tasks are known.
PULLS: Final = 48
# Every this many known trials of a task add one standard size to its next round.
WELL_KNOWN_TRIALS: Final = 256
ASSUMED_SECONDS_PER_TRIAL: Final = 0.5
# Nobody knows what comes after so many more rounds of a job.
HORIZON: Final = 256


def round_size(job: JobView, task: TaskView, eligible: int) -> int:
    """Candidates for one round of a task: more for well-known tasks, and if slots outnumber tasks."""
    if job.round_size is not None:
        return job.round_size
    trials = task.points[-1].trials if task.points else 0
    evidence = ROUND_SIZE * (1 + trials // WELL_KNOWN_TRIALS)
    devices = ROUND_SIZE * ceil(job.slots / max(1, eligible))
    affordable = max(ROUND_SIZE, candidates(job) // PULLS)
    return min(LARGEST_ROUND, max(evidence, devices), affordable)


def first_size(job: JobView, part: float) -> int:
    """A first visit: this part of a standard round while tasks wait for slots; less on small budgets."""
    standard = job.round_size or ROUND_SIZE
    tasks = sum(not task.left_out for task in job.tasks)
    share = int(candidates(job) * FIRST_PASS_SHARE / max(1, tasks))
    wanted = int(part * standard) if job.slots <= tasks else standard
    return max(SMALLEST_ROUND, min(wanted, share))


def most_trials(job: JobView) -> int | None:
    """How many candidates a job may try in all; None: its time alone limits it."""
    return ceiling(job) if job.auto else job.trials


def candidates(job: JobView) -> int:
    """The budget in candidates; without a limit, what fits into the time that is left."""
    if (most := most_trials(job)) is not None:
        return most
    seconds = job.seconds_per_trial or ASSUMED_SECONDS_PER_TRIAL
    return job.spent + int(max(0.0, job.seconds_left or 0.0) * max(1, job.slots) / seconds)


def seconds_per_trial(job: JobView, task: TaskView) -> float:
    """The pace of the task's own rounds, else of the job's, else a guess."""
    known = (task.seconds_per_trial, job.seconds_per_trial)
    return next((seconds for seconds in known if seconds), ASSUMED_SECONDS_PER_TRIAL)


class TrialBudget:
    """What a job has spent, including rounds in flight and rounds just planned."""

    def __init__(self, job: JobView) -> None:
        self._job = job
        self._spent = job.spent
        self._busy_sec = [self._takes(task, task.in_flight) for task in job.tasks if task.in_flight]

    @property
    def open_rounds(self) -> int:
        return len(self._busy_sec)

    def book(self, task: TaskView, size: int) -> None:
        self._spent += size
        self._busy_sec.append(self._takes(task, size))

    def allows(self, task: TaskView) -> int:
        """How many more candidates of a task may be planned."""
        job = self._job
        most = most_trials(job)
        left = LARGEST_ROUND if most is None else most - self._spent
        if job.task_trials is not None:
            left = min(left, job.task_trials - task.trials - task.in_flight)
        if job.seconds_left is not None:
            # One round more than workers is open, so that no worker waits. If all are busy, a round waits.
            workers = max(1, job.slots - 1)
            wait_sec = sum(self._busy_sec) / workers if self.open_rounds >= workers else 0.0
            left = min(left, int((job.seconds_left - wait_sec) / seconds_per_trial(job, task)))
        return max(0, left)

    def _takes(self, task: TaskView, size: int) -> float:
        return size * seconds_per_trial(self._job, task)


def ceiling(job: JobView) -> int:
    """The most trials of a job that has no other limit."""
    return MOST_A_TASK * sum(not task.left_out for task in job.tasks)


@dataclass(frozen=True, slots=True)
class ExpectedGain:
    """The weighted latency of the tasks that have a time, and what each further round would take off it.

    A task's n-th further round is the best since its last gain with probability 1 / (drought + n), as
    exchangeable rounds are. So its gain is taken to be the next one's, falling in that proportion: rather too
    much, because gains become smaller, too. Nothing is expected beyond what the machine takes at least.
    """

    total_us: float
    gains_us: tuple[float, ...]  # the most worthwhile round first, so that they only fall
    size: int  # candidates of a round
    limit_us: float | None = None  # what the machine takes at least, where that is known of every task

    def gain(self, after: int = 0) -> float:
        """The share of the total that the next trials win, seen from `after` so many rounds."""
        rounds = LOOK_AHEAD / self.size
        whole = after + int(rounds)
        won = sum(self.gains_us[after:whole]) + sum(self.gains_us[whole : whole + 1]) * (rounds % 1)
        return won / self.total_us if self.total_us else 0.0

    def rounds_worth(self, least: float) -> int:
        """How many rounds until the next trials win less than this share."""
        known = range(len(self.gains_us))
        return next((at for at in known if self.gain(at) < least), len(known))

    def outlook(self, trials: int) -> Outlook | None:
        """With so many trials to come; None while no task has a time."""
        if not self.total_us:
            return None
        won_us = sum(self.gains_us[: trials // self.size])
        end_us = max(self.total_us - won_us, self.limit_us or 0.0)
        now = {"now_us": self.total_us, "limit_us": self.limit_us}
        return Outlook.model_validate(now | {"end_us": end_us, "gain": self.gain(), "trials": trials})


def pays(ahead: ExpectedGain) -> bool:
    """Whether the next trials are worth their seconds."""
    return ahead.gain() >= WORTH


def had_fair_look(task: TaskView, ahead: Forecast, total_us: float) -> bool:
    """Whether enough is known of a task to leave it as it is."""
    if task.best_us is None:
        return task.weight * ahead.high_us < SHARE_THAT_MATTERS * total_us
    if task.weight * task.best_us * MOST_TO_GAIN < WORTH * total_us:
        return True
    return len(task.points) >= FAIR_ROUNDS


def expected_trials(job: JobView, ahead: ExpectedGain) -> int:
    """How many more trials a job is expected to get."""
    return min(ahead.rounds_worth(WORTH) * ahead.size, max(0, ceiling(job) - job.spent))


def prospects(
    tasks: Sequence[TaskView], forecasts: Sequence[Forecast], retired: Sequence[str], size: int
) -> ExpectedGain:
    """Of the tasks that have a time; those that get no more rounds bring nothing."""
    timed = [task for task in tasks if task.best_us is not None]
    tuned = zip(tasks, forecasts, retired, strict=True)
    falls = [
        _gains(task, ahead, size) for task, ahead, over in tuned if task.best_us is not None and not over
    ]
    # No task is slower than it was measured.
    limits = [min(task.limit_us, task.best_us or inf) * task.weight for task in timed if task.limit_us]
    return ExpectedGain(
        total_us=sum(sorted(task.weight * (task.best_us or 0.0) for task in timed)),
        gains_us=tuple(islice(merge(*falls, reverse=True), HORIZON)),
        size=size,
        limit_us=sum(sorted(limits)) if limits and len(limits) == len(timed) else None,
    )


def _gains(task: TaskView, ahead: Forecast, size: int) -> Iterator[float]:
    """What each further round of a task is expected to take off the weighted total."""
    seen = curve(task.points, task.known_us)
    tried = 1.0 + (seen.drought if seen else 0.0) * STANDARD_SIZE / size
    best_us, limit_us = task.best_us or 0.0, task.limit_us
    # A limit that was beaten was none.
    left_us = inf if limit_us is None or limit_us >= best_us else best_us - limit_us
    for more in range(HORIZON):
        gain_us = min(left_us, ahead.gain_us * tried / (tried + more))
        left_us -= gain_us
        yield task.weight * gain_us
