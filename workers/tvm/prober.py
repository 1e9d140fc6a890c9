"""Child process that runs probes on this host's own cores."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from workers.children.method import serving
from workers.children.serve import serve
from workers.device.values import random_values
from workers.faces.prober import Prober
from workers.faces.probes import Probe
from workers.tvm.shortest import shortest_sec


def clock(folder: str, probes: Sequence[Probe]) -> list[float]:
    """The shortest run of each probe of a library."""
    import tvm

    library = tvm.runtime.load_module(str(Path(folder, probes[0].library)))
    return [_shortest_sec(library, probe) for probe in probes]


def _shortest_sec(library: Any, probe: Probe) -> float:
    import tvm

    spec = probe.args
    ranges = [spec.ranges.get(str(index), (0.1, 1.0)) for index in range(len(spec.args))]
    tensors = [
        tvm.runtime.tensor(random_values(shape, dtype, low, high, index))
        for index, ((_, dtype, shape), (low, high)) in enumerate(zip(spec.args, ranges, strict=True))
    ]

    def time_runs(repeat: int) -> Sequence[float]:
        timer = library.time_evaluator(probe.function, tvm.cpu(), number=1, repeat=repeat)
        return list(timer(*tensors).results)

    return shortest_sec(time_runs)


ANSWERS: Final = (Prober.clock.by(clock),)

if __name__ == "__main__":
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    serve(serving(Prober, *ANSWERS))
