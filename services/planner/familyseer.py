"""FamilySeer: Ansor's gradient, and a small foresee round for a sibling right after one of the best member.

The shared cost model is freshest just after a member of the family was measured. Which foresee rounds are
due follows from the rounds themselves: each full round past a member's first is followed by a small one.
They count as rounds here; the released code adds them to a history whose length it does not advance.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from services.planner.ansor_gradient import gradient_us, in_words, steepest
from services.planner.planner_values import TaskView
from services.planner.policy import Arm, Policy, TaskChoice, unstarved

FORESEE_SHARE: Final = 4  # a foresee round is this part of a full one
SMALLEST_FORESEE: Final = 4


class FamilySeer(Policy):
    """Follows a full round by a small one on the best sibling, while the family's model is fresh."""

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        sizes = {arm.task.index: arm.size for arm in arms}
        owed = _owed(tasks, max(sizes.values()))
        siblings = [task for family in owed for task in family if task.index in sizes]
        if not siblings:
            task = steepest([arm.task for arm in unstarved(arms)])
            return TaskChoice(task, gradient_us(task), in_words(task))
        task = steepest(siblings)
        why = f"foresees with what its family's model just learned; {in_words(task)}"
        return TaskChoice(task, gradient_us(task), why, size=foresee_size(sizes[task.index]))


def foresee_size(size: int) -> int:
    """A quarter of a full round, with a minimum."""
    return min(size, max(SMALLEST_FORESEE, size // FORESEE_SHARE))


def _owed(tasks: Sequence[TaskView], size: int) -> Iterator[list[TaskView]]:
    """For each family with a foresee round due: its members except the one just measured."""
    families: dict[str, list[TaskView]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.index):
        families[task.family].append(task)
    most = foresee_size(size)
    for members in families.values():
        full = sum(trials > most for task in members for trials in _sizes(task))
        small = sum(trials <= most for task in members for trials in _sizes(task))
        # Rounds in flight count, so that two devices do not plan the same one.
        small += sum(0 < task.in_flight <= most and bool(task.points) for task in members)
        if len(members) > 1 and full > small and (measured := _just_measured(members, size)):
            yield [task for task in members if task is not measured]


def _sizes(task: TaskView) -> list[int]:
    """The sizes of a task's rounds past its first."""
    return [after.trials - before.trials for before, after in pairwise(task.points)]


def _just_measured(members: Sequence[TaskView], size: int) -> TaskView | None:
    """The member with the best gradient before its newest round, which the gradient picked."""
    tuned = [task for task in members if _sizes(task) and _sizes(task)[-1] > foresee_size(size)]
    before = {task.index: gradient_us(replace(task, points=task.points[:-1])) for task in tuned}
    return max(tuned, key=lambda task: (before[task.index], -task.index), default=None)
