"""Whether points may compute the sizes between them: asked of the model itself, in onnxruntime.

Nothing in a file says that the rows of a batch are independent, or that a mask hides what is filled up.
Random inputs tell: results with zeros behind, and those of two parts, beside those of the whole.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from graphc.export.onnxruntime_answers import relative_error, session
from graphc.ranges.dispatch_by_shape import PLUS, grows, names_of, shapes_at
from mallorn.core.errors import InvalidModel
from workers.tvm.check_onnx_model import first_line
from workers.tvm.compare_outputs import Array

TOLERANCE: Final = 1e-4
SEED: Final = 0
OPEN: Final = 3  # as long is what may be nothing
Dims = Mapping[str, list[int | str]]  # of each input
Run = Callable[[Mapping[str, Array]], list[Array]]


def behaviour(
    path: str, inputs: Dims, dtypes: Mapping[str, str], ranges: Mapping[str, Sequence[int]]
) -> tuple[list[str], list[str]]:
    """Return the dimensions that zeros may fill up, and of these the ones that may be computed in parts.

    Every dimension that has more sizes than one is tried; without onnxruntime none.
    """
    open_ = grows(ranges)
    free = [name for name, (low, high) in ranges.items() if low < high and name not in open_]
    if not free or find_spec("onnxruntime") is None:
        return [], []
    run, rng = _session(path), np.random.default_rng(SEED)
    padded, divided = [], []
    for name in free:
        part, high = ranges[name]
        whole = min(high, 2 * part + 1)
        sizes = {each: low or OPEN for each, (low, _) in ranges.items()} | {name: whole}
        arrays = _random(rng, inputs, dtypes, sizes)
        shapes = shapes_at(inputs, sizes | {name: part})
        if _agrees(run, arrays, _filled_up, shapes):
            padded.append(name)
            if not open_ and _agrees(run, arrays, _in_parts, inputs, name, part):
                divided.append(name)
    return padded, divided


def with_totals(
    path: str, inputs: Dims, dtypes: Mapping[str, str], ranges: Mapping[str, Sequence[int]]
) -> dict[str, list[int | str]]:
    """The inputs where a dimension without a range is what grows and another together, if the model runs so.

    A mask is as long as a cache and what comes behind it, and has a name of its own in most files.
    """
    found = {name: list(dims) for name, dims in inputs.items()}
    (open_,) = grows(ranges)
    lacking = {
        dim for dims in inputs.values() for dim in dims for each in names_of(dim) if each not in ranges
    }
    if not lacking or find_spec("onnxruntime") is None:
        return found
    run = _session(path)
    sums = [f"{open_}{PLUS}{name}" for name in ranges if name != open_]
    for total in sums:
        summed = {name: [total if dim in lacking else dim for dim in dims] for name, dims in inputs.items()}
        if all(_runs(run, summed, dtypes, sizes) for sizes in _unlike(list(ranges))):
            return summed
    return found


def _unlike(names: Sequence[str]) -> list[dict[str, int]]:
    """Sizes by which sums of two dimensions are told from each other."""
    return [
        {name: OPEN + place for place, name in enumerate(order)} for order in (names, list(reversed(names)))
    ]


def _runs(run: Run, inputs: Dims, dtypes: Mapping[str, str], sizes: Mapping[str, int]) -> bool:
    try:
        run(_random(np.random.default_rng(SEED), inputs, dtypes, sizes))
    except Exception:  # of onnxruntime's own kinds
        return False
    return True


def _session(path: str) -> Run:
    try:
        running = session(path)
    except Exception as error:  # of onnxruntime's own kinds
        raise InvalidModel(f"onnxruntime cannot read this model: {first_line(error)}") from None
    return lambda arrays: [np.asarray(result) for result in running.run(None, dict(arrays))]


def _agrees(
    run: Run, arrays: Mapping[str, Array], another: Callable[..., tuple[Any, Any]], *given: Any
) -> bool:
    try:
        ours, expected = another(run, arrays, *given)
    except Exception:  # a model that cannot be run at these sizes cannot be filled up to them, either
        return False
    return all(relative_error(*pair) <= TOLERANCE for pair in zip(ours, expected, strict=True))


def _filled_up(run: Run, arrays: Mapping[str, Array], shapes: Mapping[str, list[int]]) -> tuple[Any, Any]:
    """Results of parts of these shapes with zeros behind, cut to the parts', beside those of the parts."""
    front = {name: value[_first(shapes[name])] for name, value in arrays.items()}
    filled = {name: np.zeros_like(value) for name, value in arrays.items()}
    for name, value in front.items():
        filled[name][_first(value.shape)] = value
    expected, found = run(front), run(filled)
    return [whole[_first(each.shape)] for whole, each in zip(found, expected, strict=True)], expected


def _first(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(map(slice, shape))


def _in_parts(run: Run, arrays: Mapping[str, Array], inputs: Dims, name: str, part: int) -> tuple[Any, Any]:
    """Results of two parts, one behind the other, beside those of the whole."""
    halves = [run(_cut(arrays, inputs, name, where)) for where in (slice(0, part), slice(part, None))]
    expected = run(arrays)
    joined = [
        np.concatenate(pair, _longer(pair[0], whole)) for *pair, whole in zip(*halves, expected, strict=True)
    ]
    return joined, expected


def _longer(part: Array, whole: Array) -> int:
    """The one axis that is longer in the whole; raises ValueError where there is none, or another."""
    (axis,) = (n for n, sizes in enumerate(zip(part.shape, whole.shape, strict=True)) if sizes[0] != sizes[1])
    return axis


def _random(rng: Any, inputs: Dims, dtypes: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Zeros and ones for integers, which are valid look-ups and masks; no mask hides everything."""
    found = {}
    for name, dims in inputs.items():
        (shape,), dtype = shapes_at({name: dims}, sizes).values(), np.dtype(dtypes[name])
        whole = dtype.kind in "iub"
        drawn = np.asarray(rng.integers(0, 2, shape) if whole else rng.uniform(-1, 1, shape))
        if whole and drawn.ndim:
            drawn[..., 0] = 1
        found[name] = drawn.astype(dtype)
    return found


def _cut(arrays: Mapping[str, Array], inputs: Dims, name: str, where: slice) -> dict[str, Array]:
    return {
        key: value[tuple(where if d == name else slice(None) for d in inputs[key])]
        for key, value in arrays.items()
    }
