"""Extract the tasks of a model with free dimensions, imported at a few of their sizes.

A "point" is one choice of sizes of all free dimensions, for which the model is tuned. An
ONNX file does not tell whether a kernel for this point can serve smaller inputs, too: rows
of a batch may depend on each other, and padding may need a mask. So onnxruntime runs random
inputs zero-padded, split and unchanged, and the results are compared.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from math import log, prod
from typing import Any, Final

import numpy as np

from mallorn.core.errors import InvalidModel
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.graphc.export import compile_network as stock
from mallorn.graphc.export.compare_with_onnxruntime import make_session
from mallorn.graphc.export.output_errors import relative_error
from mallorn.graphc.ranges import dispatch_by_shape
from mallorn.graphc.ranges.dispatch_by_shape import PLUS, dimension_names_of, growing_dimensions, shapes_at
from mallorn.workers.interfaces.model_compiler import Extraction, Shapes
from mallorn.workers.measure.compare_outputs import Array
from mallorn.workers.tvm.network.check_onnx_model import first_line, read_model
from mallorn.workers.tvm.network.extract_tasks import extract_network_tasks, merge
from mallorn.workers.tvm.network.graph_recipes import skipped_passes, with_skipped_passes
from mallorn.workers.tvm.network.import_onnx_to_relax import import_at_point, name_unsized_node_in_errors
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target

# Largest number of tuned sizes, and so of schedules of one task.
MOST_POINTS: Final = 8
# Weight of gaps between sizes that may be split: padding needs a tuned size close above.
DIVIDED: Final = 0.4
# Sizes from here on are multiples of STEP.
VECTORS_FROM: Final = 16
STEP: Final = 8
TOLERANCE: Final = 1e-4
SEED: Final = 0
OPEN: Final = 3  # size to test of a dimension that may be empty
Bounds = Mapping[str, Sequence[int]]  # least and largest size of each dimension
Dims = Mapping[str, list[int | str]]  # of each input
Run = Callable[[Mapping[str, Array]], list[Array]]


def extract_range(
    model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes, bounds: Bounds
) -> Extraction:
    model = read_model(model_path)
    dtypes = {spec["name"]: spec["dtype"] for spec in stock.input_specs(model, {})}
    inputs = dispatch_by_shape.named_dims(model, input_shapes)
    open_ = growing_dimensions(bounds)
    if len(open_) > 1:
        raise InvalidModel(
            f"only one dimension may have a range from 0, as a cache that grows has: {', '.join(open_)}",
            hint=f"--dynamic {open_[1]}=1..{bounds[open_[1]][1]}",
        )
    if open_:
        inputs = replace_by_totals(model_path, inputs, dtypes, bounds)
    free = list(dict.fromkeys(name for d in inputs.values() for dim in d for name in dimension_names_of(dim)))
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
    can_pad, can_split = find_paddable_and_splittable(model_path, inputs, dtypes, bounds)
    fixed_ranges = {name: sizes for name, sizes in bounds.items() if name not in open_}
    exact = [name for name in fixed_ranges if name not in can_pad]
    try:
        points = choose_points_to_tune(fixed_ranges, exact, can_split)
    except ValueError:
        name = next(name for name in exact if fixed_ranges[name][0] < fixed_ranges[name][1])
        raise InvalidModel(
            f"the results of the model change if dimension {name!r} is padded with zeros. So each of its "
            f"sizes needs its own schedules, and at most {MOST_POINTS} sizes are tuned",
            hint="export the model with a mask among its inputs, narrow the range, or "
            f"tune for one size: --dynamic {name}={fixed_ranges[name][1]}",
        ) from None
    dynamic = Dynamic(
        ranges={name: list(sizes) for name, sizes in bounds.items()},
        inputs=inputs,
        points=points,
        padded=can_pad,
        divided=can_split,
    )
    ends, extractions = [], []
    for point in points:  # one at a time: each import has all weights in memory
        network, shapes = import_at_point(model_path, dynamic, point, as_tvm_target(target))
        with name_unsized_node_in_errors(model_path, shapes[0].inputs):
            extractions.append(extract_network_tasks(network, target, recipe))
        ends += shapes
    reasons = {name: reason for e in extractions for name, reason in skipped_passes(e.graph.recipe).items()}
    if reasons != skipped_passes(recipe):  # all points must run the same passes
        return extract_range(model_path, target, with_skipped_passes(recipe, reasons), input_shapes, bounds)

    sizes = [end.sizes for end in ends]
    output_shapes = zip(*(end.outputs for end in ends), strict=True)
    for spec, shapes_of_output in zip(extractions[-1].graph.outputs, output_shapes, strict=True):
        if None in dispatch_by_shape.express_by_dimensions(shapes_of_output, sizes):
            raise InvalidModel(
                f"the length of output {spec.name!r} does not follow from the sizes of the inputs",
                hint="export the model with outputs whose axes are those of the inputs",
            )

    tasks_at = [
        [replace(task, name=task.name + dispatch_by_shape.point_suffix(point)) for task in extraction.tasks]
        for point, extraction in zip(points, extractions, strict=True)
    ]
    largest = prod(points[-1].values())
    tasks = merge(
        replace(task, weight=task.weight * round(largest / prod(point.values())))
        for point, tasks in zip(points, tasks_at, strict=True)
        for task in tasks
    )
    name_of = {task.key: task.name for task in tasks}
    calls = [{name_of[task.key]: task.weight for task in tasks} for tasks in tasks_at]
    graph = extractions[-1].graph.model_copy(update={"dynamic": dynamic.model_copy(update={"calls": calls})})
    return Extraction(graph, tuple(tasks))


def choose_points_to_tune(
    ranges: Bounds, exact: Collection[str] = (), divided: Collection[str] = ()
) -> list[dict[str, int]]:
    """Return the sizes to tune, the largest last: few, and with small ratios between
    neighbours. Dimensions in `exact` are tuned at every size of their range. Raises
    ValueError if these sizes are more than MOST_POINTS."""
    sizes_in = {name: high - low + 1 for name, (low, high) in ranges.items()}
    counts = {name: size if name in exact else 1 for name, size in sizes_in.items()}
    if prod(counts.values()) > MOST_POINTS:
        raise ValueError(f"{prod(counts.values())} sizes, and at most {MOST_POINTS} are tuned")

    def may_grow(name: str) -> bool:
        points_then = prod(counts.values()) // counts[name] * (counts[name] + 1)
        return counts[name] < sizes_in[name] and points_then <= MOST_POINTS

    def gap(name: str) -> float:
        low, high = ranges[name]
        return log(high / low) / counts[name] * (DIVIDED if name in divided else 1.0)

    while growing := [name for name in ranges if may_grow(name)]:
        counts[max(growing, key=gap)] += 1
    axes = [choose_geometric_sizes(low, high, counts[name]) for name, (low, high) in ranges.items()]
    return [dict(zip(ranges, sizes, strict=True)) for sizes in product(*axes)]


def choose_geometric_sizes(low: int, high: int, count: int) -> list[int]:
    """Return up to `count` sizes in equal ratios from `low` to `high`; for 1 only `high`."""
    if count >= high - low + 1:
        return list(range(low, high + 1))
    sizes = {high}
    for index in range(count - 1):
        size = low * (high / low) ** (index / (count - 1))
        step = STEP if size >= VECTORS_FROM else 1
        sizes.add(low if index == 0 else min(high, max(low, round(size / step) * step)))
    return sorted(sizes)


def find_paddable_and_splittable(
    path: str, inputs: Dims, dtypes: Mapping[str, str], ranges: Bounds
) -> tuple[list[str], list[str]]:
    """Test which free dimensions may be padded with zeros, and which of these may also be
    split. Dimensions with one size, and the growing one (whose range begins at 0), are not
    tested. Without onnxruntime, both lists are empty."""
    open_ = growing_dimensions(ranges)
    free = [name for name, (low, high) in ranges.items() if low < high and name not in open_]
    if not free or find_spec("onnxruntime") is None:
        return [], []
    run, rng = _session(path), np.random.default_rng(SEED)
    can_pad, can_split = [], []
    for name in free:
        part, high = ranges[name]
        full = min(high, 2 * part + 1)
        sizes = {dim: low or OPEN for dim, (low, _) in ranges.items()} | {name: full}
        arrays = _random(rng, inputs, dtypes, sizes)
        shapes = shapes_at(inputs, sizes | {name: part})
        if _are_results_equal(partial(_run_padded_and_unpadded, run, arrays, shapes)):
            can_pad.append(name)
            if not open_ and _are_results_equal(partial(_run_split, run, arrays, inputs, name, part)):
                can_split.append(name)
    return can_pad, can_split


def replace_by_totals(
    path: str, inputs: Dims, dtypes: Mapping[str, str], ranges: Bounds
) -> dict[str, list[int | str]]:
    """Replace each dimension without a range by the sum of the growing dimension (from 0)
    and another, if the model then runs. An attention mask, for example, is as long as the
    cache plus the new tokens, but its dimension mostly has a name of its own."""
    unchanged = {name: list(dims) for name, dims in inputs.items()}
    (open_,) = growing_dimensions(ranges)
    dims_of_inputs = [dim for dims in inputs.values() for dim in dims]
    unranged = {dim for dim in dims_of_inputs if set(dimension_names_of(dim)) - ranges.keys()}
    if not unranged or find_spec("onnxruntime") is None:
        return unchanged
    run, names = _session(path), list(ranges)
    # Two choices of sizes that tell different sums of dimensions apart.
    trials = [{name: OPEN + i for i, name in enumerate(order)} for order in (names, names[::-1])]
    for total in [f"{open_}{PLUS}{name}" for name in ranges if name != open_]:
        totals = {name: [total if dim in unranged else dim for dim in dims] for name, dims in inputs.items()}
        try:
            for sizes in trials:
                run(_random(np.random.default_rng(SEED), totals, dtypes, sizes))
        except Exception:  # noqa: S112  # onnxruntime has several types of errors
            continue
        return totals
    return unchanged


def _session(path: str) -> Run:
    try:
        model = make_session(path)
    except Exception as error:  # onnxruntime has several types of errors
        raise InvalidModel(f"onnxruntime cannot read this model: {first_line(error)}") from None
    return lambda arrays: [np.asarray(result) for result in model.run(None, dict(arrays))]


def _are_results_equal(run_both: Callable[[], tuple[list[Array], list[Array]]]) -> bool:
    try:
        results, originals = run_both()
    except Exception:  # a model that fails at these sizes cannot be padded to them, either
        return False
    return all(relative_error(*pair) <= TOLERANCE for pair in zip(results, originals, strict=True))


def _run_padded_and_unpadded(
    run: Run, arrays: Mapping[str, Array], shapes: Mapping[str, list[int]]
) -> tuple[list[Array], list[Array]]:
    """Run the model on padded and unpadded parts; return both results, cut to one size."""

    def first(shape: Sequence[int]) -> tuple[slice, ...]:
        return tuple(map(slice, shape))

    parts = {name: value[first(shapes[name])] for name, value in arrays.items()}
    padded_parts = {name: np.zeros_like(value) for name, value in arrays.items()}
    for name, value in parts.items():
        padded_parts[name][first(value.shape)] = value
    originals, results = run(parts), run(padded_parts)
    return [full[first(part.shape)] for full, part in zip(results, originals, strict=True)], originals


def _run_split(
    run: Run, arrays: Mapping[str, Array], inputs: Dims, name: str, part: int
) -> tuple[list[Array], list[Array]]:
    """Run the model on two parts, cut along `name`, and on the whole; return both results."""
    halves = []
    for section in (slice(0, part), slice(part, None)):
        cuts = {
            key: value[tuple(section if dim == name else slice(None) for dim in inputs[key])]
            for key, value in arrays.items()
        }
        halves.append(run(cuts))
    originals = run(arrays)
    results = []
    for first, second, full in zip(*halves, originals, strict=True):
        # The one axis on which the shapes differ; ValueError unless one does.
        (axis,) = (n for n, (m, k) in enumerate(zip(first.shape, full.shape, strict=True)) if m != k)
        results.append(np.concatenate([first, second], axis))
    return results, originals


def _random(rng: Any, inputs: Dims, dtypes: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return random inputs; integers are 0 or 1 (valid indices and masks), not all 0."""
    arrays = {}
    for name, dims in inputs.items():
        (shape,), dtype = shapes_at({name: dims}, sizes).values(), np.dtype(dtypes[name])
        is_integer = dtype.kind in "iub"
        values = np.asarray(rng.integers(0, 2, shape) if is_integer else rng.uniform(-1, 1, shape))
        if is_integer and values.ndim:
            values[..., 0] = 1
        arrays[name] = values.astype(dtype)
    return arrays
