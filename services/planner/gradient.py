"""Ansor's gradient: the task whose next round promises the largest drop of the weighted total.

Differs from the released code in three ways that bit its users: a task without a valid result is worth a
guess instead of minus infinity for ever, ties fall to the task's index instead of a dice throw over retired
tasks, and warm knowledge counts as a round already made.
"""

from collections.abc import Sequence
from typing import Final

from services.planner.policy import Arm, Choice, Policy, unstarved
from services.planner.values import TaskView

BACKWARD_SHARE: Final = 0.2
WINDOW_ROUNDS: Final = 3
# What a task without a valid result is assumed to run at until one is known.
ASSUMED_GFLOPS: Final = 1.0


class Gradient(Policy):
    """Balances what recent rounds gained with what an optimist expects of the next."""

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> Choice:
        task = steepest([arm.task for arm in unstarved(arms)])
        return Choice(task, gradient_us(task), in_words(task), {"gradient_us": round(gradient_us(task), 3)})


def steepest(tasks: Sequence[TaskView]) -> TaskView:
    """The task of the largest gradient, the first of equals."""
    return max(tasks, key=lambda task: (gradient_us(task), -task.index))


def gradient_us(task: TaskView) -> float:
    """The weighted drop that one more round of a task is worth a bet of."""
    latency = _latency_us(task)
    rounds = max(1, len(task.curve_us))
    optimistic = latency / rounds
    return task.weight * (BACKWARD_SHARE * _recent_gain(task) + (1 - BACKWARD_SHARE) * optimistic)


def _latency_us(task: TaskView) -> float:
    if task.best_us is not None:
        return task.best_us
    guess = max(task.flops, 1.0) / (ASSUMED_GFLOPS * 1e3)
    return guess / (1 + task.failed_rounds)


def _recent_gain(task: TaskView) -> float:
    """Microseconds won a round over the last few rounds."""
    if len(task.curve_us) <= WINDOW_ROUNDS:
        return 0.0
    return (task.curve_us[-1 - WINDOW_ROUNDS] - task.curve_us[-1]) / WINDOW_ROUNDS


def in_words(task: TaskView) -> str:
    """What the gradient stands on."""
    if task.best_us is None:
        return f"no valid result yet after {task.trials} trials"
    return (
        f"{task.weight} x {task.best_us:.1f} us after {task.trials} trials, "
        f"{_recent_gain(task):.2f} us won a round lately"
    )
