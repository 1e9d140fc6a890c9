"""FamilySeer: Ansor's gradient, plus a small "foresee" round for another task of a family.

A family's shared cost model is freshest just after one of its tasks was measured. A family
is due a small round as long as it had fewer small rounds than full ones; first rounds of
tasks do not count. They count as rounds here; the released code adds them to a history
whose length it does not advance.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from mallorn.services.planner.ansor_gradient import describe_gradient, gradient_us, steepest
from mallorn.services.planner.planner_values import TaskView
from mallorn.services.planner.policy import Arm, Policy, TaskChoice, select_lagging_arms

FORESEE_SHARE: Final = 4  # a foresee round is this part of a full one
SMALLEST_FORESEE: Final = 4


class FamilySeer(Policy):
    """Policy that follows a full round by a small one on another task of its family."""

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        sizes = {arm.task.index: arm.size for arm in arms}
        due = _due_siblings(tasks, max(sizes.values()))
        siblings = [task for family in due for task in family if task.index in sizes]
        if not siblings:
            task = steepest([arm.task for arm in select_lagging_arms(arms)])
            return TaskChoice(task, gradient_us(task), describe_gradient(task))
        task = steepest(siblings)
        words = f"foresee round with its family's freshly trained model; {describe_gradient(task)}"
        return TaskChoice(task, gradient_us(task), words, size=small_round_size(sizes[task.index]))


def small_round_size(size: int) -> int:
    """Return the size of a small (foresee) round: a quarter of a full one, or a minimum."""
    return min(size, max(SMALLEST_FORESEE, size // FORESEE_SHARE))


def _due_siblings(tasks: Sequence[TaskView], size: int) -> Iterator[list[TaskView]]:
    """Yield, for each family that is due a small round, all but its last measured task."""
    families: dict[str, list[TaskView]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.index):
        families[task.family].append(task)
    small_size = small_round_size(size)
    for members in families.values():
        full = sum(trials > small_size for task in members for trials in _sizes(task))
        small = sum(trials <= small_size for task in members for trials in _sizes(task))
        # Rounds in flight count, so that two devices do not plan the same one.
        open_sizes = (size for task in members if task.points for size in task.open_sizes)
        small += sum(size <= small_size for size in open_sizes)
        if len(members) == 1 or full <= small:
            continue
        # The gradient picked the member for the newest full round.
        candidates = [task for task in members if _sizes(task) and _sizes(task)[-1] > small_size]
        slopes = {task.index: gradient_us(replace(task, points=task.points[:-1])) for task in candidates}
        newest = max(candidates, key=lambda task: (slopes[task.index], -task.index), default=None)
        if newest is not None:
            yield [task for task in members if task is not newest]


def _sizes(task: TaskView) -> list[int]:
    return [point.trials - previous.trials for previous, point in pairwise(task.points)]
