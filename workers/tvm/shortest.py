"""The shortest of many short runs: what else a host does makes runs longer only."""

from collections.abc import Callable, Sequence
from typing import Final

# One of so many meets nobody, also where the host is busy.
PROBE_SEC: Final = 0.06
LEAST_RUNS, MOST_RUNS = 8, 2000


def shortest_sec(time_runs: Callable[[int], Sequence[float]]) -> float:
    """Of as many runs as fit into the time of a probe; `time_runs` has the seconds of so many."""
    runs = PROBE_SEC / max(min(time_runs(LEAST_RUNS)), 1e-7)
    return min(time_runs(min(max(LEAST_RUNS, int(runs)), MOST_RUNS)))
