"""Extract the tasks of a model with free dimensions, imported at a few of their sizes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from math import log, prod
from typing import Any, Final

import numpy as np
import onnx

from graphc.export import compile_network as stock
from graphc.export.onnxruntime_answers import relative_error, session
from graphc.ranges import dispatch_by_shape
from graphc.ranges.dispatch_by_shape import PLUS, grows, names_of, shapes_at
from mallorn.core.errors import InvalidModel
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import GraphReport, StoredRecipe
from workers.interfaces.model_compiler import Extraction, Shapes
from workers.tvm.check_onnx_model import first_line, read_model
from workers.tvm.compare_outputs import Array
from workers.tvm.extract_tasks import describe_network, merge
from workers.tvm.graph_recipes import leaving_out, left_out
from workers.tvm.import_onnx_to_relax import Ends, load_point, naming_the_node
from workers.tvm.run_recipe_passes import as_tvm_target

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
    open_ = grows(ranges)
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
    (open_,) = grows(ranges)
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
        model = session(path)
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


# Most tuned sizes, and so most schedules of a task.
MOST_POINTS: Final = 8
# Weight of gaps between sizes that may be split: padding needs a tuned size close above.
DIVIDED: Final = 0.4
# Sizes from here on are multiples of STEP.
VECTORS_FROM: Final = 16
STEP: Final = 8
Ranges = Mapping[str, Sequence[int]]  # least and largest size of each dimension


def points_of(
    ranges: Ranges, exact: Collection[str] = (), divided: Collection[str] = ()
) -> list[dict[str, int]]:
    """Return the sizes to tune, the largest last, with every size of dimensions in `exact`.

    Raises ValueError if the latter alone are more than MOST_POINTS.
    """
    counts = {name: _count(bounds) if name in exact else 1 for name, bounds in ranges.items()}
    if prod(counts.values()) > MOST_POINTS:
        raise ValueError(f"{prod(counts.values())} sizes, and at most {MOST_POINTS} are tuned")
    while growing := [name for name in ranges if _may_grow(name, counts, ranges)]:
        counts[max(growing, key=lambda name: _gap(name, counts, ranges, divided))] += 1
    axes = [sizes_of(low, high, counts[name]) for name, (low, high) in ranges.items()]
    return [dict(zip(ranges, sizes, strict=True)) for sizes in product(*axes)]


def sizes_of(low: int, high: int, count: int) -> list[int]:
    """Return at most `count` sizes in equal ratios from `low` to `high`; for 1 only `high`."""
    if count >= high - low + 1:
        return list(range(low, high + 1))
    ratios = [(high / low) ** (index / (count - 1)) for index in range(count - 1)] if count > 1 else []
    return sorted({*(low if ratio == 1 else _rounded(low * ratio, high) for ratio in ratios), high})


def _rounded(size: float, high: int) -> int:
    step = STEP if size >= VECTORS_FROM else 1
    return min(high, round(size / step) * step)


def _count(bounds: Sequence[int]) -> int:
    return bounds[1] - bounds[0] + 1


def _may_grow(name: str, counts: Mapping[str, int], ranges: Ranges) -> bool:
    others = prod(counts.values()) // counts[name]
    return counts[name] < _count(ranges[name]) and others * (counts[name] + 1) <= MOST_POINTS


def _gap(name: str, counts: Mapping[str, int], ranges: Ranges, divided: Collection[str]) -> float:
    low, high = ranges[name]
    return log(high / low) / counts[name] * (DIVIDED if name in divided else 1.0)


Bounds = Mapping[str, Sequence[int]]  # least and largest size of each dimension
ONE_SIZE: Final = "tune for one size: --dynamic {name}={size}"


def extract_range(
    model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes, bounds: Bounds
) -> Extraction:
    """Import a model at points of a range, and describe the tasks of all points.

    Tasks of smaller points get larger weights, so that all points count the same. Raises
    InvalidModel if sizes between the points could not be computed.
    """
    model = read_model(model_path)
    inputs = _inputs(model_path, model, input_shapes, bounds)
    padded, divided = behaviour(model_path, inputs, _dtypes(model), bounds)
    closed = {name: each for name, each in bounds.items() if name not in dispatch_by_shape.grows(bounds)}
    points = _points(closed, [name for name in closed if name not in padded], divided)
    dynamic = Dynamic(
        ranges={name: list(each) for name, each in bounds.items()},
        inputs=inputs,
        points=points,
        padded=padded,
        divided=divided,
    )
    ends, extractions = [], []
    for point in points:  # one at a time: each import has all weights in memory
        network, shapes = load_point(model_path, dynamic, point, as_tvm_target(target))
        with naming_the_node(model_path, shapes[0].inputs):
            extractions.append(describe_network(network, target, recipe))
        ends += shapes
    reasons = {name: reason for each in extractions for name, reason in left_out(each.graph.recipe).items()}
    if reasons != left_out(recipe):  # all points must run the same passes
        recipe = leaving_out(recipe, reasons)
        return extract_range(model_path, target, recipe, input_shapes, bounds)
    _refuse_unknown_lengths(extractions[-1].graph, ends)
    named = [
        [replace(task, name=task.name + dispatch_by_shape.label(point)) for task in each.tasks]
        for point, each in zip(points, extractions, strict=True)
    ]
    tasks = merge(
        [
            replace(task, weight=task.weight * round(prod(points[-1].values()) / prod(point.values())))
            for point, each in zip(points, named, strict=True)
            for task in each
        ]
    )
    name_of = {task.key: task.name for task in tasks}
    calls = [{name_of[task.key]: task.weight for task in each} for each in named]
    graph = extractions[-1].graph.model_copy(update={"dynamic": dynamic.model_copy(update={"calls": calls})})
    return Extraction(graph, tuple(tasks))


def _inputs(
    path: str, model: onnx.ModelProto, input_shapes: Shapes, bounds: Bounds
) -> dict[str, list[int | str]]:
    """Return the inputs' dimensions. Raises InvalidModel unless bounds match the free ones."""
    inputs = dispatch_by_shape.named_dims(model, input_shapes)
    open_ = dispatch_by_shape.grows(bounds)
    if len(open_) > 1:
        raise InvalidModel(
            f"two ranges begin with 0, and one dimension may grow: {', '.join(open_)}",
            hint=f"--dynamic {open_[1]}=1..{bounds[open_[1]][1]}",
        )
    if open_:
        inputs = with_totals(path, inputs, _dtypes(model), bounds)
    named = [name for dims in inputs.values() for dim in dims for name in dispatch_by_shape.names_of(dim)]
    free = list(dict.fromkeys(named))
    free_names = f"its free dimensions: {', '.join(free) or 'none'}"
    if unknown := [name for name in bounds if name not in free]:
        raise InvalidModel(f"the model has no free dimension {unknown[0]!r}", hint=free_names)
    if "?" in free:
        nameless = next(name for name, dims in inputs.items() if "?" in dims)
        bound = ",".join("1" if isinstance(dim, str) else str(dim) for dim in inputs[nameless])
        raise InvalidModel(
            f"a free dimension of input {nameless!r} has no name", hint=f"--input-shape {nameless}:{bound}"
        )
    if unbounded := [name for name in free if name not in bounds]:
        raise InvalidModel(
            f"these free dimensions have no range: {', '.join(unbounded)}",
            hint=" ".join(f"--dynamic {name}=1..64" for name in unbounded)
            + "   (or one size: --dynamic NAME=1)",
        )
    return inputs


def _dtypes(model: onnx.ModelProto) -> dict[str, str]:
    return {spec["name"]: spec["dtype"] for spec in stock.input_specs(model, {})}


def _points(bounds: Bounds, exact: Sequence[str], divided: Sequence[str]) -> list[dict[str, int]]:
    try:
        return points_of(bounds, exact, divided)
    except ValueError:
        name = next(name for name in exact if bounds[name][0] < bounds[name][1])
        raise InvalidModel(
            f"results change where {name!r} is filled up with zeros, so no size can stand in for those "
            f"below it, and at most {MOST_POINTS} are tuned",
            hint=f"export the model with a mask among its inputs, narrow the range, or "
            f"{ONE_SIZE.format(name=name, size=bounds[name][1])}",
        ) from None


def _refuse_unknown_lengths(graph: GraphReport, ends: Sequence[Ends]) -> None:
    sizes = [each.sizes for each in ends]
    for spec, shapes in zip(graph.outputs, zip(*(each.outputs for each in ends), strict=True), strict=True):
        if None in dispatch_by_shape.follows(shapes, sizes):
            raise InvalidModel(
                f"how long output {spec.name!r} is does not follow from the sizes of the inputs",
                hint="export the model with outputs whose axes are those of the inputs",
            )
