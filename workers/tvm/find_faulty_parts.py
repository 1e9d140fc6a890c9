"""Search for the parts that make a whole fail: passes of a recipe, or schedules of a model."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

MOST_FAULTY: Final = 3  # parts that are searched one by one; where more are faulty, all are left out
T = TypeVar("T")


def faulty_parts(parts: Sequence[T], works_without: Callable[[Sequence[T]], bool]) -> Sequence[T] | None:
    """Return few parts without which the whole works, or None if it fails without all of them.

    The search bisects: it calls `works_without` about log2(len(parts)) times for each faulty part.
    """
    if not parts or not works_without(parts):
        return None
    found: list[T] = []
    suspects = list(parts)
    for _ in range(MOST_FAULTY):
        # It fails without `found` and the suspects below `low`, and works without those below `high`, too.
        low, high = 0, len(suspects)
        while high - low > 1:
            middle = (low + high) // 2
            if works_without([*found, *suspects[:middle]]):
                high = middle
            else:
                low = middle
        found.append(suspects[high - 1])
        suspects = suspects[: high - 1]
        if not suspects or works_without(found):
            return found
    return parts
