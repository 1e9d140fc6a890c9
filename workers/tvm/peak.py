"""Child process that finds out what a CPU's cores compute at most: numbers that never leave registers."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from workers.children.method import serving
from workers.children.serve import serve
from workers.faces.peak import Peak
from workers.host.roofline import shortest_sec

#: Fewer vectors leave the multipliers waiting for sums, more do not fit the 16 registers of AVX2.
VECTORS: Final = 12
STEPS: Final = 1 << 20
_OPERATIONS: Final = 2  # a product and a sum


def peak_gflops(target: str, cores: int) -> float:
    """Products and sums in single precision on so many of a target's cores."""
    from workers.tvm.programs import parse_tvm_target, vector_lanes

    lanes = vector_lanes(target)
    sums = _multiply_and_add(cores, lanes, parse_tvm_target(target))
    return _OPERATIONS * cores * STEPS * VECTORS * lanes / shortest_sec(sums) / 1e9


def _multiply_and_add(cores: int, lanes: int, target: Any) -> Callable[[], None]:
    import tvm

    kernel = tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(sums: T.Buffer(({cores}, {VECTORS}, {lanes}), "float32")) -> None:
    T.func_attr({{"tirx.noalias": True}})
    for core in T.parallel({cores}):
        for step in range({STEPS}):
            for vector in T.unroll({VECTORS}):
                for lane in T.vectorized({lanes}):
                    sums[core, vector, lane] = sums[core, vector, lane] * T.float32(0.5) + T.float32(1)
""")
    library = tvm.compile(kernel, target)
    held = tvm.runtime.tensor(np.zeros((cores, VECTORS, lanes), "float32"))
    return lambda: library["main"](held)


ANSWERS: Final = (Peak.peak_gflops.by(peak_gflops),)

if __name__ == "__main__":
    serve(serving(Peak, *ANSWERS))
