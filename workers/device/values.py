"""Random arguments of a tensor program, the same on every host."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def random_values(shape: tuple[int, ...], dtype: str, low: float, high: float, seed: int) -> NDArray[Any]:
    """Values of [low, high), evenly spread; booleans are coin flips."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        first, end = int(low), max(int(low) + 1, int(high))
        return generator.integers(first, end, shape, dtype=np.int64).astype(dtype)
    values = generator.random(shape, dtype=np.float32) * np.float32(high - low) + np.float32(low)
    return values.astype(dtype_of(dtype))


def dtype_of(dtype: str) -> np.dtype[Any]:
    """numpy's type of that name, or what stands for it."""
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes  # the narrow floats; needed only where a workload has them

        narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype))
        return narrow
