"""Extract the tasks of a model with free dimensions, imported at a few of their sizes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final

import onnx

from graphc.export import compile_network as stock
from graphc.ranges import dispatch_by_shape
from mallorn.core.errors import InvalidModel
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import GraphReport, StoredRecipe
from workers.interfaces.model_compiler import Extraction, Shapes
from workers.tvm.check_onnx_model import read_model
from workers.tvm.check_padding_and_splitting import behaviour, with_totals
from workers.tvm.choose_tuned_sizes import MOST_POINTS, points_of
from workers.tvm.extract_tasks import describe_network, merge
from workers.tvm.graph_recipes import leaving_out, left_out
from workers.tvm.import_onnx_to_relax import Ends, load_point
from workers.tvm.name_failing_onnx_node import naming_the_node
from workers.tvm.run_recipe_passes import as_tvm_target

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
    closed = {
        name: each
        for name, each in bounds.items()
        if name not in dispatch_by_shape.growing_dimensions(bounds)
    }
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
        [replace(task, name=task.name + dispatch_by_shape.point_suffix(point)) for task in each.tasks]
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
    open_ = dispatch_by_shape.growing_dimensions(bounds)
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
        if None in dispatch_by_shape.express_by_dimensions(shapes, sizes):
            raise InvalidModel(
                f"how long output {spec.name!r} is does not follow from the sizes of the inputs",
                hint="export the model with outputs whose axes are those of the inputs",
            )
