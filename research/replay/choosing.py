"""Which of many recorded tasks to keep."""

from collections.abc import Sequence
from itertools import zip_longest

from research.replay.recording import RecordedTask


def of_every_kind(tasks: Sequence[RecordedTask], count: int) -> list[RecordedTask]:
    """The operators in turn, the largest task of each first, until there are `count`; in their old order."""
    kinds: dict[str, list[RecordedTask]] = {}
    for task in sorted(tasks, key=lambda task: -task.flops):
        kinds.setdefault(task.op, []).append(task)
    in_turn = [task for turn in zip_longest(*kinds.values()) for task in turn if task is not None]
    kept = {id(task) for task in in_turn[:count]}
    return [task for task in tasks if id(task) in kept]
