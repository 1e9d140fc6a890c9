"""Test in onnxruntime whether tuned sizes of a model can serve the sizes between them.

An ONNX file does not say that the rows of a batch are independent, or that a mask hides
padding. Random inputs show it: results of zero-padded and of split inputs are compared with
the originals.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from graphc.export.onnxruntime_answers import make_session, relative_error
from graphc.ranges.dispatch_by_shape import PLUS, growing_dimensions, names_of, shapes_at
from mallorn.core.errors import InvalidModel
from workers.tvm.check_onnx_model import first_line
from workers.tvm.compare_outputs import Array

TOLERANCE: Final = 1e-4
SEED: Final = 0
OPEN: Final = 3  # size to test of a dimension that may be empty
Dims = Mapping[str, list[int | str]]  # of each input
Run = Callable[[Mapping[str, Array]], list[Array]]


def behaviour(
    path: str, inputs: Dims, dtypes: Mapping[str, str], ranges: Mapping[str, Sequence[int]]
) -> tuple[list[str], list[str]]:
    """Return the dimensions that may be padded with zeros, and those that may also be split.

    Every dimension with more than one size is tested; without onnxruntime none is.
    """
    open_ = growing_dimensions(ranges)
    free = [name for name, (low, high) in ranges.items() if low < high and name not in open_]
    if not free or find_spec("onnxruntime") is None:
        return [], []
    run, rng = _session(path), np.random.default_rng(SEED)
    padded, divided = [], []
    for name in free:
        part, high = ranges[name]
        full = min(high, 2 * part + 1)
        sizes = {each: low or OPEN for each, (low, _) in ranges.items()} | {name: full}
        arrays = _random(rng, inputs, dtypes, sizes)
        shapes = shapes_at(inputs, sizes | {name: part})
        if _agrees(run, arrays, _padded, shapes):
            padded.append(name)
            if not open_ and _agrees(run, arrays, _split, inputs, name, part):
                divided.append(name)
    return padded, divided


def with_totals(
    path: str, inputs: Dims, dtypes: Mapping[str, str], ranges: Mapping[str, Sequence[int]]
) -> dict[str, list[int | str]]:
    """Replace dimensions without a range by the growing plus another one, if that model runs.

    An attention mask is as long as the cache and the new tokens, but mostly has its own
    dimension.
    """
    unchanged = {name: list(dims) for name, dims in inputs.items()}
    (open_,) = growing_dimensions(ranges)
    unranged = {
        dim for dims in inputs.values() for dim in dims for each in names_of(dim) if each not in ranges
    }
    if not unranged or find_spec("onnxruntime") is None:
        return unchanged
    run = _session(path)
    sums = [f"{open_}{PLUS}{name}" for name in ranges if name != open_]
    for total in sums:
        summed = {name: [total if dim in unranged else dim for dim in dims] for name, dims in inputs.items()}
        if all(_runs(run, summed, dtypes, sizes) for sizes in _distinct_sizes(list(ranges))):
            return summed
    return unchanged


def _distinct_sizes(names: Sequence[str]) -> list[dict[str, int]]:
    """Return two choices of sizes that tell different sums of dimensions apart."""
    return [
        {name: OPEN + place for place, name in enumerate(order)} for order in (names, list(reversed(names)))
    ]


def _runs(run: Run, inputs: Dims, dtypes: Mapping[str, str], sizes: Mapping[str, int]) -> bool:
    try:
        run(_random(np.random.default_rng(SEED), inputs, dtypes, sizes))
    except Exception:  # onnxruntime has several types of errors
        return False
    return True


def _session(path: str) -> Run:
    try:
        model = make_session(path)
    except Exception as error:  # onnxruntime has several types of errors
        raise InvalidModel(f"onnxruntime cannot read this model: {first_line(error)}") from None
    return lambda arrays: [np.asarray(result) for result in model.run(None, dict(arrays))]


def _agrees(
    run: Run, arrays: Mapping[str, Array], variant: Callable[..., tuple[Any, Any]], *options: Any
) -> bool:
    try:
        ours, expected = variant(run, arrays, *options)
    except Exception:  # a model that fails at these sizes cannot be padded to them, either
        return False
    return all(relative_error(*pair) <= TOLERANCE for pair in zip(ours, expected, strict=True))


def _padded(run: Run, arrays: Mapping[str, Array], shapes: Mapping[str, list[int]]) -> tuple[Any, Any]:
    """Return the results of zero-padded parts, cut to size, and those of the parts."""
    parts = {name: value[_first(shapes[name])] for name, value in arrays.items()}
    padded = {name: np.zeros_like(value) for name, value in arrays.items()}
    for name, value in parts.items():
        padded[name][_first(value.shape)] = value
    expected, results = run(parts), run(padded)
    return [full[_first(each.shape)] for full, each in zip(results, expected, strict=True)], expected


def _first(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(map(slice, shape))


def _split(run: Run, arrays: Mapping[str, Array], inputs: Dims, name: str, part: int) -> tuple[Any, Any]:
    """Return the concatenated results of two parts, and the results of the unsplit arrays."""
    halves = [run(_cut(arrays, inputs, name, where)) for where in (slice(0, part), slice(part, None))]
    expected = run(arrays)
    joined = [
        np.concatenate(pair, _axis_of(pair[0], full)) for *pair, full in zip(*halves, expected, strict=True)
    ]
    return joined, expected


def _axis_of(part: Array, full: Array) -> int:
    """Return the one axis on which the shapes differ. Raises ValueError unless one does."""
    (axis,) = (n for n, sizes in enumerate(zip(part.shape, full.shape, strict=True)) if sizes[0] != sizes[1])
    return axis


def _random(rng: Any, inputs: Dims, dtypes: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return random inputs; integers are 0 or 1, valid as indices and masks, never all 0."""
    arrays = {}
    for name, dims in inputs.items():
        (shape,), dtype = shapes_at({name: dims}, sizes).values(), np.dtype(dtypes[name])
        is_integer = dtype.kind in "iub"
        values = np.asarray(rng.integers(0, 2, shape) if is_integer else rng.uniform(-1, 1, shape))
        if is_integer and values.ndim:
            values[..., 0] = 1
        arrays[name] = values.astype(dtype)
    return arrays


def _cut(arrays: Mapping[str, Array], inputs: Dims, name: str, section: slice) -> dict[str, Array]:
    return {
        key: value[tuple(section if d == name else slice(None) for d in inputs[key])]
        for key, value in arrays.items()
    }
