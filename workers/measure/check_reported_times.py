"""Check the run times that a device reports, since it may be broken or dishonest."""

from collections.abc import Sequence
from math import isfinite


class ImpossibleTime(Exception):
    """The device reported a time that no run can have taken."""


def check_times(run_us: Sequence[float], elapsed_us: float) -> None:
    """Raise ImpossibleTime unless all times are finite, positive and at most `elapsed_us`."""
    for time_us in run_us:
        if not isfinite(time_us) or time_us <= 0:
            raise ImpossibleTime(f"the device reports that a run took {time_us:g} us")
        if time_us > elapsed_us:
            words = f"the device reports that a run took {time_us:g} us"
            raise ImpossibleTime(f"{words}, but the answer came after {elapsed_us:g} us")
