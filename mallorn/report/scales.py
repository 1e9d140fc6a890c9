"""Where the ticks of an axis stand."""

import math
from collections.abc import Iterable
from typing import Final

STEPS: Final = (1, 2, 5)


def even_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about so many."""
    if high <= low:
        return [low]
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(step * size for step in (*STEPS, 10) if step * size >= rough)
    return [at * step for at in range(math.ceil(low / step), math.floor(high / step) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """One, two and five times powers of ten; where the range is too narrow for two of them, even ones."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in STEPS]
    inside = [tick for tick in ticks if low <= tick <= high]
    return thinned(inside) if len(inside) >= 2 else even_ticks(low, high)


def thinned(ticks: list[float], most: int = 7) -> list[float]:
    """Every second, third, ... of too many."""
    return ticks[:: math.ceil(len(ticks) / most)]


def padded(values: Iterable[float]) -> tuple[float, float]:
    """The range of the values with some room above and below, on a logarithmic axis."""
    known = list(values)
    low, high = min(known), max(known)
    room = max((high / low) ** 0.08, 1.01)
    return low / room, high * room
