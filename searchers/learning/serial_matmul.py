"""Compute matrix products on the calling thread only."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SERIAL = 1 << 18  # multiplications up to which OpenBLAS uses only the calling thread


def product(left: NDArray[np.floating], right: NDArray[np.floating]) -> Array:
    """Return left @ right, computed in blocks of rows that OpenBLAS does on the calling thread.

    On a busy host, threads that wait for each other take far longer. The result does not
    depend on the number of cores.
    """
    block = max(1, SERIAL // max(1, right.size))
    if len(left) <= block:
        return np.asarray(left @ right, dtype=np.float64)
    parts = [left[start : start + block] @ right for start in range(0, len(left), block)]
    return np.asarray(np.concatenate(parts), dtype=np.float64)
