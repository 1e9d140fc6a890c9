"""The size of a round, and how many candidates the budgets still allow.

The budget `auto`: a job goes on while its next trials are expected to be worth their seconds.
"""

from math import ceil
from typing import Final

from mallorn.core.job_options import LARGEST_ROUND
from mallorn.core.values.expected_gain import WORTH
from services.planner.belief import Forecast
from services.planner.eligible_tasks import SHARE_THAT_MATTERS
from services.planner.expected_gain import ExpectedGain
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
        """Count a planned round."""
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
            left = min(left, int(self._free_sec(job.seconds_left) / seconds_per_trial(job, task)))
        return max(0, left)

    def _free_sec(self, seconds_left: float) -> float:
        """The time left once a worker is free: if all are busy, a round waits for those in flight."""
        # One round more than workers is open, so that none of them waits.
        workers = max(1, self._job.slots - 1)
        wait = sum(self._busy_sec) / workers if self.open_rounds >= workers else 0.0
        return seconds_left - wait

    def _takes(self, task: TaskView, size: int) -> float:
        return size * seconds_per_trial(self._job, task)


def ceiling(job: JobView) -> int:
    """The most trials of a job that has no other limit."""
    return MOST_A_TASK * sum(not task.left_out for task in job.tasks)


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
