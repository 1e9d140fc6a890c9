"""Errors of outputs against references; batches carry it, so it imports only numpy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_OTHER_STEP = 0.01  # share of numbers that may be off by a step: wrong schedules spoil more
_FEW_VALUES = 256  # an output with at most so many distinct values is itself rounded to 8 bits
_INNER_STEP = 1 / 127  # effect of one rounding step of a term, as a share of the largest value


def relative_error(output: Any, reference: Any) -> float:
    """Return max difference / max value; infinite if shapes or positions of NaN differ."""
    left, right = np.asarray(output, "float64"), np.asarray(reference, "float64")
    finite = np.isfinite(right)
    if left.shape != right.shape or not np.array_equal(np.isfinite(left), finite):
        return float("inf")
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return float("inf")
    difference = np.abs(left[finite] - right[finite]).max(initial=0.0)
    return float(difference / max(np.abs(right[finite]).max(initial=0.0), 1e-30))


def worst_error(outputs: Sequence[Any], references: Sequence[Any]) -> float:
    return max(relative_error(*pair) for pair in zip(outputs, references, strict=True))


def rounded_outputs_error(outputs: Array, reference: Array) -> float:
    """Return the relative error of outputs that were rounded to few values. If no number is
    off by more than one rounding step, the worst 1 % are ignored."""
    error = relative_error(outputs, reference)
    if not np.isfinite(error) or not outputs.size:
        return error
    differences = np.abs(np.asarray(outputs, "float64") - np.asarray(reference, "float64")).reshape(-1)
    largest = float(np.abs(np.asarray(reference, "float64")).max())

    # The largest change of each number that rounding the other way can cause.
    steps: Array = np.ones(1)
    if not np.issubdtype(reference.dtype, np.integer):
        values, inverse = np.unique(np.asarray(reference, "float64"), return_inverse=True)
        steps = np.full(1, largest * _INNER_STEP)
        if 1 < len(values) <= _FEW_VALUES:
            gaps = np.diff(values)
            wider_gaps = np.maximum(np.append(gaps, gaps[-1]), np.append(gaps[0], gaps))
            steps = wider_gaps[inverse.reshape(-1)]

    ignored = max(1, int(len(differences) * _OTHER_STEP))
    if len(differences) <= ignored or (differences > steps * (1 + 1e-6)).any():
        return error
    return float(np.sort(differences)[-1 - ignored] / max(largest, 1e-30))
