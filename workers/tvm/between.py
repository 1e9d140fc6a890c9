"""Whether points may compute the sizes between them: asked of the model itself, in onnxruntime.

Nothing in a file says that the rows of a batch are independent, or that a mask hides what is filled up.
Random inputs tell: results with zeros behind, and those of two parts, beside those of the whole.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import numpy as np

from mallorn.core.errors import InvalidModel
from workers.tvm.accuracy import Array, relative_error
from workers.tvm.onnx_reader import first_line

TOLERANCE: Final = 1e-4
SEED: Final = 0
Dims = Mapping[str, Sequence[int | str]]  # of each input
Run = Callable[[Mapping[str, Array]], list[Array]]


class Behaviour(NamedTuple):
    """Dimensions that zeros may fill up, and of these what may be computed in parts."""

    padded: list[str]
    divided: list[str]


def behaviour(
    path: str, inputs: Dims, dtypes: Mapping[str, str], ranges: Mapping[str, Sequence[int]]
) -> Behaviour:
    """Try every dimension that has more sizes than one. Nothing is known without onnxruntime."""
    free = [name for name, (low, high) in ranges.items() if low < high]
    if not free or find_spec("onnxruntime") is None:
        return Behaviour([], [])
    run, rng = _session(path), np.random.default_rng(SEED)
    padded, divided = [], []
    for name in free:
        part, whole = _two_sizes(*ranges[name])
        least = {each: low for each, (low, _) in ranges.items()}
        arrays = _random(rng, inputs, dtypes, least | {name: whole})
        if _agrees(run, arrays, inputs, name, part, _filled_up):
            padded.append(name)
            if _agrees(run, arrays, inputs, name, part, _in_parts):
                divided.append(name)
    return Behaviour(padded, divided)


def _two_sizes(low: int, high: int) -> tuple[int, int]:
    return low, min(high, 2 * low + 1)


def _session(path: str) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of onnxruntime's own kinds
        raise InvalidModel(f"onnxruntime cannot read this model: {first_line(error)}") from None
    return lambda arrays: [np.asarray(result) for result in session.run(None, dict(arrays))]


def _agrees(
    run: Run,
    arrays: Mapping[str, Array],
    inputs: Dims,
    name: str,
    part: int,
    another: Callable[..., tuple[Any, Any]],
) -> bool:
    try:
        ours, expected = another(run, arrays, inputs, name, part)
    except Exception:  # a model that cannot be run at these sizes cannot be filled up to them, either
        return False
    return all(relative_error(*pair) <= TOLERANCE for pair in zip(ours, expected, strict=True))


def _filled_up(run: Run, arrays: Mapping[str, Array], inputs: Dims, name: str, part: int) -> tuple[Any, Any]:
    """Results of a part with zeros behind, cut to the part's, beside those of the part."""
    front = _cut(arrays, inputs, name, slice(0, part))
    behind = {
        key: np.zeros_like(value) for key, value in _cut(arrays, inputs, name, slice(part, None)).items()
    }
    expected, found = run(front), run(_together(front, behind, inputs, name))
    return [
        whole[tuple(map(slice, each.shape))] for whole, each in zip(found, expected, strict=True)
    ], expected


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
        shape, dtype = [sizes[dim] if isinstance(dim, str) else dim for dim in dims], np.dtype(dtypes[name])
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


def _together(
    front: Mapping[str, Array], behind: Mapping[str, Array], inputs: Dims, name: str
) -> dict[str, Array]:
    """Parts that were cut, as one; an input without the dimension is what it was."""
    found = {}
    for key, value in front.items():
        margins = [(0, behind[key].shape[axis] if dim == name else 0) for axis, dim in enumerate(inputs[key])]
        found[key] = np.pad(value, margins)
    return found
