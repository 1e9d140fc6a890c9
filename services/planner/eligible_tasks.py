"""Decides which tasks may get rounds: first those without a time, then all that may gain.

Nothing is stored: a task that rests, as no gain is expected, returns with new evidence.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from mallorn.services.planner.learning_curve_points import NOISE, curve_of
from mallorn.services.planner.planner_values import Forecast, TaskView
from mallorn.services.planner.policy import (
    Arm,
    TaskChoice,
    describe_expected_gain,
    round_significant,
    weighted_us,
)

# A task is skipped if its weighted latency is certainly a smaller share of the job's.
SHARE_THAT_MATTERS: Final = 0.0005
OTHER_SEARCHER: Final = "random"
HOPELESS_ROUNDS: Final = 3  # rounds in a row without a valid result before a task is given up
SMALLEST_PROMISE: Final = 0.02
ROUNDS_TO_REST: Final = 4  # minimum of rounds with a result, and of rounds since the last gain


def total_us(tasks: Sequence[TaskView], forecasts: Sequence[Forecast]) -> float:
    """Return the sum of all tasks' weighted latencies, measured or else expected."""
    return sum(sorted(map(weighted_us, tasks, forecasts)))


def unvisited(arms: Iterable[Arm], total: float) -> list[Arm]:
    """Return the tasks without a valid result whose latency may matter.

    As long as some of them were never tried, only those are returned.
    """
    untimed = [arm for arm in arms if arm.task.best_us is None]
    least_us = SHARE_THAT_MATTERS * total
    matter = [arm for arm in untimed if arm.task.weight * arm.forecast.high_us >= least_us]
    return [arm for arm in matter if not arm.task.points] or matter


def first_visit(arms: Sequence[Arm]) -> TaskChoice:
    """Choose, among tasks without a result, the one with the largest weighted latency."""
    arm = max(arms, key=lambda arm: (weighted_us(arm.task, arm.forecast), -arm.task.index))
    reason = f"no valid result in {arm.task.trials} trials" if arm.task.points else "first visit"
    figures = {"weighted_us": round_significant(weighted_us(arm.task, arm.forecast))}
    return TaskChoice(arm.task, 0.0, f"{reason}: {describe_expected_gain(arm)}", figures)


def searcher(task: TaskView) -> str | None:
    """Return the searcher of a task's next round; None stands for the job's own.

    It is `random` if no result is valid yet and an odd number of rounds failed.
    """
    return OTHER_SEARCHER if task.best_us is None and task.failed_rounds % 2 == 1 else None


def why_task_is_finished(task: TaskView, task_trials: int | None) -> str:
    """Return why a task is finished for good; empty if it is not."""
    if task.left_out:
        return "the job asks for other tasks only"
    if task.exhausted:
        return f"the space has no untried candidates after {task.trials} trials"
    if task_trials is not None and task.trials >= task_trials:
        return f"the task's budget of {task_trials} trials is spent"
    if task.lost_rounds >= HOPELESS_ROUNDS:
        cause = "they lost every worker, or TVM refused the task"
        return f"its last {task.lost_rounds} rounds were given up: {cause}"
    if task.best_us is None and task.failed_rounds >= HOPELESS_ROUNDS:
        return f"no valid result in {task.trials} trials; the default schedule is kept"
    return ""


def why_task_rests(task: TaskView, forecast: Forecast) -> str:
    """Return why a task's next round is unlikely to gain anything; empty if it may gain."""
    fitted = curve_of(task.points, task.known_us)
    if fitted is None or len(fitted.log_us) < ROUNDS_TO_REST or fitted.drought < ROUNDS_TO_REST:
        return ""
    if forecast.gain_probability >= SMALLEST_PROMISE:
        return ""
    chance = f"a {forecast.gain_probability:.1%} chance of {NOISE:.0%} less than {task.best_us:.4g} us"
    return f"rests: {chance} in a round"


def why_all_rest(tasks: Sequence[TaskView], forecasts: Sequence[Forecast]) -> str:
    """Return that a job ends early because no task is likely to gain, as a sentence."""
    pairs = zip(tasks, forecasts, strict=True)
    best, name = max((forecast.gain_probability, task.name) for task, forecast in pairs)
    return (
        f"nothing is worth another round: no task has more than a {best:.1%} chance ({name}) "
        f"to get {NOISE:.0%} faster in its next one"
    )
