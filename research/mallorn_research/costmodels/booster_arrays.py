"""Boosters as arrays of bytes, as cost models store them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from mallorn.costmodels.serialization import as_array
from mallorn.costmodels.xgboost_models import as_bytes, from_bytes


def as_arrays(boosters: Sequence[xgboost.Booster]) -> dict[str, NDArray[np.uint8]]:
    return {f"booster{index}": as_array(as_bytes(booster)) for index, booster in enumerate(boosters)}


def from_arrays(arrays: Mapping[str, NDArray[Any]], members: int, kind: str) -> list[xgboost.Booster]:
    """Return the boosters that `as_arrays` stored. Raises InvalidRequest for damaged bytes."""
    return [from_bytes(arrays[f"booster{index}"].tobytes(), kind) for index in range(members)]
