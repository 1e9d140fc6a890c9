"""What a device may claim of a run: it measures itself, and may be broken or lie."""

from collections.abc import Sequence
from math import isfinite


class ImpossibleTime(Exception):
    """The device told a time that no run can have taken."""


def check_times(run_us: Sequence[float], elapsed_us: float) -> None:
    """Raises ImpossibleTime for a time that is none, and for one that is longer than all of it took us."""
    for told_us in run_us:
        if not isfinite(told_us) or told_us <= 0:
            raise ImpossibleTime(f"the device tells that a run took {told_us:g} us")
        if told_us > elapsed_us:
            words = f"the device tells that a run took {told_us:g} us"
            raise ImpossibleTime(f"{words}, and its answer came after {elapsed_us:g} us")
