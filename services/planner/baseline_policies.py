"""Baseline policies that ignore results, for comparison with other policies."""

from collections.abc import Sequence
from random import Random

from mallorn.services.planner.planner_values import TaskView
from mallorn.services.planner.policy import Arm, Policy, TaskChoice


class RoundRobin(Policy):
    """Policy that chooses the task with the fewest rounds."""

    rests = False

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        task = min((arm.task for arm in arms), key=lambda task: (task.rounds, task.index))
        return TaskChoice(task, 0.0, f"fewest rounds so far: {task.rounds}")


class RandomChoice(Policy):
    """Policy that chooses a task at random, with equal probabilities."""

    rests = False

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        by_index = sorted((arm.task for arm in arms), key=lambda task: task.index)
        task = Random(seed).choice(by_index)  # noqa: S311  (a choice, not a secret)
        return TaskChoice(task, 0.0, f"drawn at random among {len(arms)} tasks")
