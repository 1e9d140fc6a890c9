"""Time that a budget in minutes reserves for a job's last stage: checks and exports."""

from typing import Final

FINISH_SEC: Final = 15.0
FINISH_SEC_PER_TASK: Final = 2.5
MOST_OF_BUDGET: Final = 0.5  # thousands of tasks would otherwise take the whole budget


def finish_sec(tasks: int) -> float:
    """Return an estimate of the last stage's duration in seconds for this many tasks."""
    return FINISH_SEC + FINISH_SEC_PER_TASK * tasks
