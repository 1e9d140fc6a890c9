"""Every task in turn, the least tuned first: the baseline."""

from collections.abc import Sequence

from services.planner.policy import Choice, Policy
from services.planner.values import TaskView


class RoundRobin(Policy):
    """Ignores what was measured."""

    def choose(self, tasks: Sequence[TaskView], seed: int) -> Choice:
        task = min(tasks, key=lambda task: (task.rounds + (task.in_flight > 0), task.index))
        return Choice(task, 0.0, f"its turn after {task.rounds} rounds")
