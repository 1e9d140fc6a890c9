"""The shortest of many short runs: what else a host does makes runs longer only."""

from collections.abc import Callable, Sequence
from typing import Final

from mallorn.core.values.trial import is_disturbed
from workers.device.slice_times import Slice

# One of so many meets nobody, also where the host is busy.
PROBE_SEC: Final = 0.06
LEAST_RUNS, MOST_RUNS = 8, 2000
# So often it is looked for a moment in which its processors are ours.
ATTEMPTS: Final = 5


def shortest(time_runs: Callable[[int], Sequence[Slice]]) -> Slice:
    """Of as many runs as fit into the time of a probe, undisturbed where that is to be had.

    `time_runs` has the times of so many.
    """
    rough_sec = min(run.mean_sec for run in time_runs(LEAST_RUNS))
    count = min(max(LEAST_RUNS, int(PROBE_SEC / max(rough_sec, 1e-7))), MOST_RUNS)
    found: list[Slice] = []
    for _ in range(ATTEMPTS):
        found += time_runs(count)
        if quiet := [run for run in found if not is_disturbed(run.disturbed)]:
            return min(quiet)
    return min(found)
