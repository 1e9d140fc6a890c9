"""Named arrays in a file, narrow floats included, which numpy would store without their type."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.device.values import dtype_of

_BFLOAT16 = "bfloat16"
_MARK = f":{_BFLOAT16}"


def save_arrays(path: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write them in order."""
    stored: dict[str, Any] = {}
    for name, array in arrays.items():
        narrow = array.dtype.name == _BFLOAT16
        stored[name + _MARK if narrow else name] = array.view(np.uint16) if narrow else array
    np.savez(path, **stored)


def load_arrays(path: str) -> dict[str, NDArray[Any]]:
    """What `save_arrays` wrote, in order."""
    with np.load(path) as archive:
        return {
            name.removesuffix(_MARK): array.view(dtype_of(_BFLOAT16)) if name.endswith(_MARK) else array
            for name, array in archive.items()
        }
