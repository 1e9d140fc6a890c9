"""The budget `auto`: a job goes on while its next trials are expected to be worth their seconds."""

from typing import Final

from mallorn.core.values.outlook import WORTH
from services.planner.belief import Forecast
from services.planner.first_pass import SHARE_THAT_MATTERS
from services.planner.prospects import Prospects
from services.planner.values import JobView, TaskView

# So many rounds show how a task's curve goes on.
FAIR_ROUNDS: Final = 3
# A first time tells enough of a task that would be worth too little even if it lost this share of it.
MOST_TO_GAIN: Final = 0.5
# Whatever is expected, a job ends after so many trials a task.
MOST_A_TASK: Final = 256


def ceiling(job: JobView) -> int:
    """The most trials of a job that has no other limit."""
    return MOST_A_TASK * sum(not task.left_out for task in job.tasks)


def pays(ahead: Prospects) -> bool:
    """Whether the next trials are worth their seconds."""
    return ahead.gain() >= WORTH


def had_fair_look(task: TaskView, ahead: Forecast, total_us: float) -> bool:
    """Whether enough is known of a task to leave it as it is."""
    if task.best_us is None:
        return task.weight * ahead.high_us < SHARE_THAT_MATTERS * total_us
    if task.weight * task.best_us * MOST_TO_GAIN < WORTH * total_us:
        return True
    return len(task.points) >= FAIR_ROUNDS


def expected_trials(job: JobView, ahead: Prospects) -> int:
    """How many more trials a job is expected to get."""
    return min(ahead.rounds_worth(WORTH) * ahead.size, max(0, ceiling(job) - job.spent))
