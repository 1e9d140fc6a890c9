"""Random arguments of tensor programs, equal on all hosts, and files of named arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def random_values(shape: tuple[int, ...], dtype: str, low: float, high: float, seed: int) -> NDArray[Any]:
    """Return uniform random values in [low, high); booleans are random bits."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        first, end = int(low), max(int(low) + 1, int(high))
        return generator.integers(first, end, shape, dtype=np.int64).astype(dtype)
    values = generator.random(shape, dtype=np.float32) * np.float32(high - low) + np.float32(low)
    return values.astype(dtype_of(dtype))


def draw_arguments(draws: Sequence[Any], seed: int) -> list[NDArray[Any]]:
    """Return arguments of these types, shapes and ranges, drawn one after the other by one
    seeded generator."""
    generator, values = np.random.default_rng(seed), []
    for dtype, shape, low, high in draws:
        is_whole = dtype.startswith(("int", "uint", "bool"))
        draw: Any = generator.integers if is_whole else generator.uniform
        values.append(np.asarray(draw(low, high, shape)).astype(dtype_of(dtype)))
    return values


def dtype_of(dtype: str) -> np.dtype[Any]:
    """Return the dtype of this name from numpy, or from ml_dtypes if numpy has none."""
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes  # only workloads with narrow floats need it

        narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype))
        return narrow


_BFLOAT16 = "bfloat16"
_MARK = f":{_BFLOAT16}"


def save_arrays(path: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    arrays_by_name: dict[str, Any] = {}
    for name, array in arrays.items():
        narrow = array.dtype.name == _BFLOAT16
        arrays_by_name[name + _MARK if narrow else name] = array.view(np.uint16) if narrow else array
    np.savez(path, **arrays_by_name)


def load_arrays(path: str) -> dict[str, NDArray[Any]]:
    with np.load(path) as archive:
        return {
            name.removesuffix(_MARK): array.view(dtype_of(_BFLOAT16)) if name.endswith(_MARK) else array
            for name, array in archive.items()
        }
