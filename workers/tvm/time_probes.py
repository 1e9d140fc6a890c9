"""Shortest of many short runs of a probe: what else a host does makes runs longer only."""

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from mallorn.core.outcomes import is_disturbed
from workers.device.random_and_saved_arrays import random_values
from workers.device.slice_timing_result import Slice
from workers.interfaces.hardware_probes import Probe

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


def clock(folder: str, probes: Sequence[Probe]) -> list[Slice]:
    """The shortest run of each probe of one library in `folder`, on this host's own cores."""
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    import tvm
    import tvm_ffi

    from workers.device.slice_timer import NEXT_SLICE, SliceTimer

    timer = SliceTimer(on_cores=True, raised=False)
    tvm_ffi.register_global_func(NEXT_SLICE, timer.next_slice, override=True)
    library = tvm.runtime.load_module(str(Path(folder, probes[0].library)))
    tensor = cache(lambda *drawn: tvm.runtime.tensor(random_values(*drawn)))

    def time_probe(probe: Probe) -> Slice:
        tensors = [
            tensor(shape, dtype, *probe.args.ranges.get(str(n), (0.1, 1.0)), n)
            for n, (_, dtype, shape) in enumerate(probe.args.args)
        ]
        return shortest(lambda count: timer.times(library, probe.function, "cpu", 1, count, *tensors).slices)

    return [time_probe(probe) for probe in probes]
