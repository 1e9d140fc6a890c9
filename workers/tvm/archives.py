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
    stored: dict[str, Any] = dict(_stored(name, array) for name, array in arrays.items())
    np.savez(path, **stored)


def load_arrays(path: str) -> dict[str, NDArray[Any]]:
    """What `save_arrays` wrote, in order."""
    with np.load(path) as archive:
        return dict(_restored(name, archive[name]) for name in archive.files)


def _stored(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    return (name + _MARK, array.view(np.uint16)) if array.dtype.name == _BFLOAT16 else (name, array)


def _restored(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    if not name.endswith(_MARK):
        return name, array
    return name.removesuffix(_MARK), array.view(dtype_of(_BFLOAT16))
