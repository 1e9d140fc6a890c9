"""Random arguments of tensor programs, equal on all hosts, and files of named arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

#: Ranges of timed arguments: indices stay valid, and floats are not denormal.
FLOAT_RANGE: Final = (0.1, 1.0)
INT_RANGE: Final = (0, 1)
_BFLOAT16 = "bfloat16"
_MARK = f":{_BFLOAT16}"


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


class TimedArguments:
    """Random arguments of timed libraries in a device's memory. An argument is reused from
    the last library if type, shape and range are equal.

    `allocate` takes a shape and a type; `fill` a tensor, the two ends of a range, and a seed.
    """

    def __init__(self, allocate: Callable[[Sequence[int], str], Any], fill: Callable[..., object]) -> None:
        self._allocate, self._fill = allocate, fill
        self._args: dict[int, tuple[Any, Any]] = {}

    def of_program(
        self, args: Sequence[tuple[str, str, Sequence[int]]], ranges: Mapping[str, Sequence[float]]
    ) -> list[Any]:
        """Return the arguments of a program; the fields are those of `Arguments`."""
        for index in [index for index in self._args if index >= len(args)]:
            del self._args[index]
        for index, (_, dtype, shape) in enumerate(args):
            default = INT_RANGE if dtype.startswith(("int", "uint", "bool")) else FLOAT_RANGE
            low, high = map(float, ranges.get(str(index), default))
            key = (dtype, shape, low, high)
            if index not in self._args or self._args[index][0] != key:
                self._args.pop(index, None)  # frees the old tensor before the new one is allocated
                tensor = self._allocate(shape, dtype)
                self._fill(tensor, low, high, index)
                self._args[index] = (key, tensor)
        return [self._args[index][1] for index in range(len(args))]

    def clear(self) -> None:
        self._args.clear()


def random_fill(tensor: Any, low: float, high: float, seed: int) -> None:
    """Fill a tensor of TVM with random values in [low, high)."""
    tensor.copyfrom(random_values(tuple(tensor.shape), str(tensor.dtype), low, high, seed))


def draw_arguments(draws: Sequence[Any], seed: int) -> list[NDArray[Any]]:
    """Draw arguments of these types, shapes and ranges in turn by one seeded generator."""
    generator, values = np.random.default_rng(seed), []
    for dtype, shape, low, high in draws:
        is_whole = dtype.startswith(("int", "uint", "bool"))
        draw: Any = generator.integers if is_whole else generator.uniform
        values.append(np.asarray(draw(low, high, shape)).astype(dtype_of(dtype)))
    return values


def checksum_inputs(values: Sequence[NDArray[Any]], outputs: Sequence[int]) -> int:
    """Return a checksum of all arguments except those with the indices `outputs`."""
    total = 0
    for index, value in enumerate(values):
        if index not in outputs:
            total = crc32(value.tobytes(), total)
    return total


def dtype_of(dtype: str) -> np.dtype[Any]:
    """Return the dtype of this name from numpy, or from ml_dtypes if numpy has none."""
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes  # only workloads with narrow floats need it

        narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype))
        return narrow


def save_arrays(path: str | IO[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
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
