"""The first pass: every task that matters is visited before the policy steers."""

from collections.abc import Iterable, Sequence
from typing import Final

from services.planner.belief import Forecast
from services.planner.decision_reasons import figure, in_words, weighted_us
from services.planner.planner_values import TaskView
from services.planner.policy import Arm, TaskChoice

# A task whose weighted latency is certainly a smaller share of the job's is skipped.
SHARE_THAT_MATTERS: Final = 0.0005
OTHER_SEARCHER: Final = "random"


def total_us(tasks: Sequence[TaskView], forecasts: Sequence[Forecast]) -> float:
    """The job's weighted latency as far as known, independent of the order of the tasks."""
    return sum(sorted(map(weighted_us, tasks, forecasts)))


def unvisited(arms: Iterable[Arm], total: float) -> list[Arm]:
    """Tasks that matter and have no valid result: untouched ones first, then those whose batches failed."""
    without = [arm for arm in arms if arm.task.best_us is None]
    least_us = SHARE_THAT_MATTERS * total
    matter = [arm for arm in without if arm.task.weight * arm.forecast.high_us >= least_us]
    return [arm for arm in matter if not arm.task.points] or matter


def first_visit(arms: Sequence[Arm]) -> TaskChoice:
    """The heaviest of the unvisited tasks."""
    arm = max(arms, key=lambda arm: (weighted_us(arm.task, arm.forecast), -arm.task.index))
    why = (
        f"nothing valid in {arm.task.trials} trials" if arm.task.points else "first visit, the heaviest first"
    )
    figures = {"weighted_us": figure(weighted_us(arm.task, arm.forecast))}
    return TaskChoice(arm.task, 0.0, f"{why}: {in_words(arm)}", figures)


def searcher(task: TaskView) -> str | None:
    """Another searcher after a batch that failed entirely; None: the job's own."""
    return OTHER_SEARCHER if task.best_us is None and task.failed_rounds % 2 == 1 else None
