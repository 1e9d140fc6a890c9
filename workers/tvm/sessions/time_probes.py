"""Time probes (small kernels) by their shortest run: other load only makes runs longer."""

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from mallorn.core.outcomes import is_disturbed
from mallorn.workers.device.random_and_saved_arrays import random_values
from mallorn.workers.device.slice_timing_result import Slice
from mallorn.workers.interfaces.hardware_probes import Probe

# Seconds of runs per probe, enough for one undisturbed run even on a busy host.
PROBE_SEC: Final = 0.06
LEAST_RUNS, MOST_RUNS = 8, 2000
# Attempts to find a moment in which no other program uses the cores.
ATTEMPTS: Final = 5


def shortest(time_runs: Callable[[int], Sequence[Slice]]) -> Slice:
    """Return the shortest of the runs that fit into PROBE_SEC, preferring runs that nothing
    disturbed. `time_runs` times a given number of runs."""
    rough_sec = min(run.mean_sec for run in time_runs(LEAST_RUNS))
    count = min(max(LEAST_RUNS, int(PROBE_SEC / max(rough_sec, 1e-7))), MOST_RUNS)
    runs: list[Slice] = []
    for _ in range(ATTEMPTS):
        runs += time_runs(count)
        if undisturbed := [run for run in runs if not is_disturbed(run.disturbed)]:
            return min(undisturbed)
    return min(runs)


def time_probes_here(folder: str, probes: Sequence[Probe]) -> list[Slice]:
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    import tvm
    import tvm_ffi

    from mallorn.workers.device.slice_timer import NEXT_SLICE, SliceTimer

    timer = SliceTimer(on_cores=True, has_priority=False)
    tvm_ffi.register_global_func(NEXT_SLICE, timer.count_slice, override=True)
    library = tvm.runtime.load_module(str(Path(folder, probes[0].library)))
    tensor = cache(lambda *arguments: tvm.runtime.tensor(random_values(*arguments)))

    def time_probe(probe: Probe) -> Slice:
        tensors = [
            tensor(shape, dtype, *probe.args.ranges.get(str(n), (0.1, 1.0)), n)
            for n, (_, dtype, shape) in enumerate(probe.args.args)
        ]
        return shortest(lambda n: timer.time_slices(library, probe.function, "cpu", 1, n, *tensors).slices)

    return [time_probe(probe) for probe in probes]
