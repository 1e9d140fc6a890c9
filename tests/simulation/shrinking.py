"""The fewest faults of a seed that still break a law: delta debugging over what was drawn."""

from collections.abc import Callable, Sequence

from tests.simulation.weather import Fault

Broken = Callable[[Sequence[Fault]], bool]


def fewest(faults: Sequence[Fault], broken: Broken) -> list[Fault]:
    """A part of the faults with which it is broken, and of which none can be left out.

    `broken` holds for all of them. Halves are left out first, then ever smaller parts.
    """
    left = list(faults)
    if broken([]):
        return []
    parts = 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        without = next(
            (
                rest
                for start in range(0, len(left), size)
                if (rest := left[:start] + left[start + size :]) and broken(rest)
            ),
            None,
        )
        if without is not None:
            left, parts = without, max(2, parts - 1)
        elif size == 1:
            break
        else:
            parts = min(len(left), parts * 2)
    return left
