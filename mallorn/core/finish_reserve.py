"""What a finish takes, set aside from a budget in minutes: measured again, compiled, checked, timed."""

from typing import Final

FINISH_SEC: Final = 15.0
FINISH_SEC_PER_TASK: Final = 2.5
MOST_OF_BUDGET: Final = 0.5  # with thousands of tasks the finish would take all of it


def finish_sec(tasks: int) -> float:
    """About how long the finish of a model with so many tasks takes."""
    return FINISH_SEC + FINISH_SEC_PER_TASK * tasks
