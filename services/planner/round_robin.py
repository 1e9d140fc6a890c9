"""Every task in turn, the least tuned first: the baseline."""

from collections.abc import Sequence

from services.planner.policy import Arm, Policy, TaskChoice
from services.planner.values import TaskView


class RoundRobin(Policy):
    """The least tuned task, whatever was measured."""

    rests = False

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        task = min((arm.task for arm in arms), key=lambda task: (task.rounds, task.index))
        return TaskChoice(task, 0.0, f"its turn after {task.rounds} rounds")
