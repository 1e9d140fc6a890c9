"""Ansor's gradient: choose the task with the largest expected drop of weighted latency.

It differs from the released code in three ways. A task without a valid result gets an
assumed rate instead of minus infinity for ever. The task's index breaks ties instead of a
random choice that includes retired tasks. Results of earlier jobs count as one round.
"""

from collections.abc import Sequence
from typing import Final

from mallorn.services.planner.planner_values import TaskView
from mallorn.services.planner.policy import Arm, Policy, TaskChoice, select_lagging_arms

BACKWARD_SHARE: Final = 0.2
WINDOW_ROUNDS: Final = 3
# The assumed rate of a task without a valid result.
ASSUMED_GFLOPS: Final = 1.0


class Gradient(Policy):
    """Policy that averages a task's recent gain and an optimistic bound on its next gain."""

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        task = steepest([arm.task for arm in select_lagging_arms(arms)])
        gain_us = gradient_us(task)
        figures = {"gradient_us": round(gain_us, 3)}
        return TaskChoice(task, gain_us, describe_gradient(task), figures)


def steepest(tasks: Sequence[TaskView]) -> TaskView:
    """Return the task with the largest gradient; the lowest index wins ties."""
    return max(tasks, key=lambda task: (gradient_us(task), -task.index))


def gradient_us(task: TaskView) -> float:
    """Return the expected drop of weighted latency (us) from one more round of a task."""
    latency_us = task.best_us
    if latency_us is None:
        latency_us = max(task.flops, 1.0) / (ASSUMED_GFLOPS * 1e3) / (1 + task.failed_rounds)
    optimistic = latency_us / max(1, len(task.curve_us))
    return task.weight * (BACKWARD_SHARE * _recent_gain(task) + (1 - BACKWARD_SHARE) * optimistic)


def _recent_gain(task: TaskView) -> float:
    if len(task.curve_us) <= WINDOW_ROUNDS:
        return 0.0
    return (task.curve_us[-1 - WINDOW_ROUNDS] - task.curve_us[-1]) / WINDOW_ROUNDS


def describe_gradient(task: TaskView) -> str:
    """Describe a task's latency and recent gain, from which its gradient is computed."""
    if task.best_us is None:
        return f"no valid result yet after {task.trials} trials"
    return (
        f"{task.weight} x {task.best_us:.1f} us after {task.trials} trials, "
        f"{_recent_gain(task):.2f} us gained per round lately"
    )
