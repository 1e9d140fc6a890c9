"""Matrix products on the calling thread."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SERIAL = 1 << 18  # multiplications up to which OpenBLAS stays on the calling thread


def product(left: NDArray[np.floating], right: NDArray[np.floating]) -> Array:
    """left @ right in blocks of rows: on a busy host, threads that wait for each other cost far more.

    The result does not depend on the number of cores.
    """
    block = max(1, SERIAL // max(1, right.size))
    if len(left) <= block:
        return np.asarray(left @ right, dtype=np.float64)
    parts = [left[at : at + block] @ right for at in range(0, len(left), block)]
    return np.asarray(np.concatenate(parts), dtype=np.float64)
