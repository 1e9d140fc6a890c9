"""How far two answers are apart, and how far rounding alone may carry them."""

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphc.export.onnxruntime_answers import relative_error, worst_error
from workers.device.random_and_saved_arrays import load_arrays
from workers.interfaces.model_compiler import Agreement, Reference

Array = NDArray[Any]
# Sums of floats in another order differ by rounding; a real fault is orders of magnitude beyond this.
_SLACK = 16.0
_OTHER_STEP = 0.01  # of all numbers: a schedule that computes something else spoils more
_FEW_VALUES = 256  # an answer of so few values is rounded itself: to 8 bits
_INNER_STEP = 1 / 127  # of the largest value: what one step of a term moves a sum by
_BFLOAT16_EPS = 2.0**-7
_FLOAT16_EPS = 2.0**-10


def rounded_error(ours: Array, theirs: Array) -> float:
    """The relative error but for a few places that may have been rounded the other way, by a step at most."""
    whole = relative_error(ours, theirs)
    if not np.isfinite(whole) or not ours.size:
        return whole
    apart = np.abs(np.asarray(ours, "float64") - np.asarray(theirs, "float64")).reshape(-1)
    largest = float(np.abs(np.asarray(theirs, "float64")).max())
    few = max(1, int(len(apart) * _OTHER_STEP))
    if len(apart) <= few or (apart > _steps(theirs, largest) * (1 + 1e-6)).any():
        return whole
    return float(np.sort(apart)[-1 - few] / max(largest, 1e-30))


def _steps(theirs: Array, largest: float) -> Array:
    """The most that rounding the other way moves each number: to the next value of a rounded answer."""
    if np.issubdtype(theirs.dtype, np.integer):
        return np.ones(1)
    values, places = np.unique(np.asarray(theirs, "float64"), return_inverse=True)
    if not 1 < len(values) <= _FEW_VALUES:
        return np.full(1, largest * _INNER_STEP)
    gaps = np.diff(values)
    wider: Array = np.maximum(np.append(gaps, gaps[-1]), np.append(gaps[0], gaps))
    return wider[places.reshape(-1)]


def tolerance(dtype: str, reduction_len: int, float16_error: float = 0.0) -> float:
    """The relative error that rounding may leave in a sum of that many terms; none for integers.

    `float16_error` is what rounding to float16 inside the program leaves; a float16 result of float32 sums is
    rounded once.
    """
    if dtype == "bfloat16":  # the result of float32 sums, rounded in the end
        return _BFLOAT16_EPS + tolerance("float32", reduction_len)
    if dtype == "float16":
        return _FLOAT16_EPS + float16_error + tolerance("float32", reduction_len)
    if not dtype.startswith("float"):
        return 0.0
    return _SLACK * float(np.finfo(dtype).eps) * max(1.0, sqrt(reduction_len)) + float16_error


def compare(outputs_npz: str, expected_npz: str, by: Reference) -> Agreement:
    """Answers beside those expected: each output within the tolerance of its type."""
    errors, limits = [], []
    ours, theirs = load_arrays(outputs_npz), load_arrays(expected_npz)
    for name in (f"arg_{index}" for index in by.outputs):
        error, dtype = (rounded_error if by.rounds else relative_error), str(ours[name].dtype)
        errors.append(error(ours[name], theirs[name]))
        limits.append(tolerance("float32" if by.rounds else dtype, by.reduction_len, by.float16_error))
    ok = all(error <= limit for error, limit in zip(errors, limits, strict=True))
    return Agreement(max(errors), max(limits), ok)


def compare_models(outputs_npz: str, expected_npz: str) -> float:
    """The worst relative error of two engines' outputs, as `engines.save_outputs` writes them."""
    with np.load(outputs_npz) as ours, np.load(expected_npz) as theirs:
        if sorted(ours.files) != sorted(theirs.files):
            return float("inf")
        return worst_error([ours[name] for name in theirs.files], list(theirs.values()))
