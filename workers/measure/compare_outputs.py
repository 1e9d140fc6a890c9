"""Compute errors of a program's outputs, and the tolerances that rounding justifies."""

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mallorn.graphc.export.output_errors import relative_error, rounded_outputs_error, worst_error
from mallorn.workers.device.random_and_saved_arrays import load_arrays
from mallorn.workers.interfaces.output_comparison import Agreement, Reference

Array = NDArray[Any]
# Reordered sums of floats differ by rounding; real faults are orders of magnitude larger.
_SLACK = 16.0
_BFLOAT16_EPS = 2.0**-7
_FLOAT16_EPS = 2.0**-10


def tolerance(dtype: str, reduction_len: int, float16_error: float = 0.0) -> float:
    """Return the relative error that rounding may cause in sums of `reduction_len` terms; 0
    for integers. Float16 and bfloat16 results are taken to be float32 sums that are rounded
    once. `float16_error` is added for float16 rounding inside the program."""
    if dtype == "bfloat16":  # computed as float32 sums, which are rounded at the end
        return _BFLOAT16_EPS + tolerance("float32", reduction_len)
    if dtype == "float16":
        return _FLOAT16_EPS + float16_error + tolerance("float32", reduction_len)
    if not dtype.startswith("float"):
        return 0.0
    return _SLACK * float(np.finfo(dtype).eps) * max(1.0, sqrt(reduction_len)) + float16_error


def compare_outputs(outputs_npz: str, expected_npz: str, by: Reference) -> Agreement:
    """Compare saved outputs with expected ones, with a tolerance for each data type."""
    return compare_arrays(load_arrays(outputs_npz), load_arrays(expected_npz), by)


def compare_arrays(outputs: Mapping[str, Array], expected: Mapping[str, Array], by: Reference) -> Agreement:
    """Compare the arrays `arg_<index>`. An array `places_<index>` says which elements of a
    flattened output are expected; without it, all are."""
    errors, limits = [], []
    error_between = rounded_outputs_error if by.rounds else relative_error
    for index in by.outputs:
        output, places = outputs[f"arg_{index}"], expected.get(f"places_{index}")
        dtype = str(output.dtype)
        if places is not None:
            output = output.reshape(-1)[places]
        errors.append(error_between(output, expected[f"arg_{index}"]))
        limits.append(tolerance("float32" if by.rounds else dtype, by.reduction_len, by.float16_error))
    ok = all(error <= limit for error, limit in zip(errors, limits, strict=True))
    return Agreement(max(errors), max(limits), ok)


def find_constant_outputs(outputs_npz: str, draws: int) -> list[int]:
    """Return the indices of outputs that are one number in all of the file's draws."""
    with np.load(outputs_npz) as outputs:
        arrays = [np.ravel(array) for array in outputs.values()]
    count = len(arrays) // draws
    elements = [np.concatenate(arrays[index::count]) for index in range(count)]
    return [index for index, values in enumerate(elements) if values.size and len(np.unique(values)) == 1]


def compare_models(outputs_npz: str, expected_npz: str) -> float:
    """Return the largest relative error of two engines' outputs; inf if names differ."""
    with np.load(outputs_npz) as outputs, np.load(expected_npz) as reference:
        if sorted(outputs.files) != sorted(reference.files):
            return float("inf")
        return worst_error([outputs[name] for name in reference.files], list(reference.values()))
