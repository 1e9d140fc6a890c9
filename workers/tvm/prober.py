"""Child process that runs probes on this host's own cores."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workers.children.method import serving
from workers.children.serve import serve
from workers.device.slice_times import Slice
from workers.device.values import random_values
from workers.faces.prober import Prober
from workers.faces.probes import Probe
from workers.tvm.shortest import shortest

if TYPE_CHECKING:
    from workers.device.slice_timer import SliceTimer


def clock(folder: str, probes: Sequence[Probe]) -> list[Slice]:
    """The shortest run of each probe of a library."""
    import tvm
    import tvm_ffi

    from workers.device.slice_timer import NEXT_SLICE, SliceTimer

    timer = SliceTimer(on_cores=True, raised=False)
    tvm_ffi.register_global_func(NEXT_SLICE, timer.next_slice, override=True)
    library = tvm.runtime.load_module(str(Path(folder, probes[0].library)))
    return [_shortest(timer, library, probe) for probe in probes]


def _shortest(timer: "SliceTimer", library: Any, probe: Probe) -> Slice:
    import tvm

    spec = probe.args
    ranges = [spec.ranges.get(str(index), (0.1, 1.0)) for index in range(len(spec.args))]
    tensors = [
        tvm.runtime.tensor(random_values(shape, dtype, low, high, index))
        for index, ((_, dtype, shape), (low, high)) in enumerate(zip(spec.args, ranges, strict=True))
    ]

    def time_runs(count: int) -> Sequence[Slice]:
        return timer.times(library, probe.function, "cpu", 1, count, *tensors).slices

    return shortest(time_runs)


ANSWERS: Final = (Prober.clock.by(clock),)

if __name__ == "__main__":
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    serve(serving(Prober, *ANSWERS))
