"""Choose one layout for weights that several functions read, so that they are stored once.

Every schedule changes the layout of weights to suit its loops ("re-lays" them), and a range
of shapes has other schedules for each tuned size. Mostly their layouts keep one order of
numbers, and differ in the shape and in how many columns are read at a time. A function that
reads few columns can read them from a wider group, as a group's columns are contiguous.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tvm
from tvm import relax, tirx
from tvm.s_tir import SBlock, Schedule

from mallorn.graphc.core.graph_rewriting import collect_nodes

RELAID = "meta_schedule.layout_rewrite_preproc"
Place = tuple[int, str, int]  # index of a module, name of a function, index of a parameter


class Digit(NamedTuple):
    """A digit, `index % high // low`, of an index along the weights' axis number `axis`."""

    axis: int
    low: int
    high: int


Layout = tuple[Digit, ...]  # from the slowest to the fastest axis


class Relaid(NamedTuple):
    """A layout that a schedule gave to a parameter, and the block that changes it."""

    block: str
    digits: Layout  # one per axis of the re-laid weights
    layout: Layout  # digits with neighbours merged, which only differ in shape


def reduce_weight_layouts(mods: Sequence[Any]) -> list[Any]:
    """Return the modules with fewer layouts per weight; vector reads stay contiguous."""
    relaid_by_place = {
        (place, var.name_hint, param): relaid
        for place, mod in enumerate(mods)
        for var, function in mod.functions.items()
        if isinstance(function, tirx.PrimFunc)
        for param, relaid in find_relaid_parameters(function)
    }
    new_layouts: dict[Place, Layout] = {}
    # Group the parameters that read the same weights; groups with common members merge.
    groups: dict[Any, list[Place]] = {}
    for index, mod in enumerate(mods):
        graphs = [graph for graph in mod.functions.values() if isinstance(graph, relax.Function)]
        for call in (call for graph in graphs for call in collect_nodes(graph, relax.Call)):
            if getattr(call.op, "name", "") != "relax.call_tir":
                continue
            for number, argument in enumerate(call.args[1]):
                place = (index, call.args[0].name_hint, number)
                if isinstance(argument, tvm.ir.GenericConst) and place in relaid_by_place:
                    groups.setdefault(argument, []).append(place)
    group_of: dict[Place, list[Place]] = {}
    for places in groups.values():
        members = list(dict.fromkeys(p for place in places for p in group_of.get(place, [place])))
        group_of.update(dict.fromkeys(members, members))
    for group in {id(group): group for group in group_of.values()}.values():
        if len({relaid_by_place[place].digits for place in group}) == 1:
            continue
        # The widest layouts first; among equals that of the smallest point.
        widths = {
            place: layout[-1].high // layout[-1].low if layout else 1
            for place in group
            for layout in [relaid_by_place[place].layout]
        }
        layouts: list[Layout] = []
        for place in sorted(group, key=lambda place: (-widths[place], place)):
            own = relaid_by_place[place].layout
            layout = next((layout for layout in layouts if keeps_runs_contiguous(own, layout)), None)
            if layout is None:
                layouts.append(own)
            new_layouts[place] = layout or own

    result = []
    for index, mod in enumerate(mods):
        functions = dict(mod.functions.items())
        for var, function in functions.items():
            for place, layout in new_layouts.items():
                if place[:2] == (index, var.name_hint) and relaid_by_place[place].digits != layout:
                    function = _transform_layout(function, relaid_by_place[place], layout)
            functions[var] = function
        result.append(tvm.IRModule(functions, attrs=mod.attrs))
    return result


def _transform_layout(function: Any, relaid: Relaid, layout: Layout) -> Any:
    def new_index(*values: Any) -> list[Any]:
        return [digit_expression(digit, relaid.digits, values) for digit in layout]

    schedule = Schedule(function, debug_mask="none")
    schedule.transform_layout(relaid.block, ("write", 0), new_index)
    return schedule.mod["main"].with_attrs(function.attrs)


def digit_expression(target: Digit, digits: Layout, values: Sequence[Any]) -> Any:
    """Compute digit `target` of an index from `values`, which are those of `digits`."""
    parts = zip(digits, values, strict=True)
    index = sum(value * digit.low for digit, value in parts if digit.axis == target.axis)
    return index % target.high // target.low


def merge_digits(digits: Layout) -> Layout:
    """Remove digits that have only one value, and merge adjacent digits of an index."""
    result: list[Digit] = []
    for digit in digits:
        if result and result[-1].axis == digit.axis and result[-1].low == digit.high:
            result[-1] = Digit(digit.axis, digit.low, result[-1].high)
        elif digit.low < digit.high:
            result.append(digit)
    return tuple(result)


def keeps_runs_contiguous(own: Layout, layout: Layout) -> bool:
    """Return whether numbers that are contiguous in the layout `own` are so in `layout`."""
    if not own or own == layout:
        return own == layout
    (axis, low, high), last = own[-1], layout[-1]
    return (last.axis, last.low) == (axis, low) and last.high % high == 0


def find_relaid_parameters(function: Any) -> Iterator[tuple[int, Relaid]]:
    """Yield position and new layout of each parameter that a block re-lays by digits."""
    params = {hash(param): number for number, param in enumerate(function.params)}
    blocks = collect_nodes(function, SBlock)
    # Skip parameters of tensor intrinsics, which expect fixed distances between numbers.
    fixed = {hash(match.source.source) for block in blocks for match in block.match_buffers}
    for block in blocks:
        store = block.body
        if RELAID not in block.annotations or not isinstance(store, tirx.BufferStore):
            continue
        weights = getattr(store.value, "source", None)
        if hash(weights) not in params or hash(store.buffer) in fixed:
            continue
        # The digits of each axis of the re-laid weights, if every index is a digit.
        axes, shape = [axis.var for axis in block.iter_vars], store.value.source.shape
        indices = store.value.indices
        if len(indices) != len(axes) or not all(map(_is_same, indices, axes)):
            continue
        digits = tuple(d for index in store.indices if (d := _digit(index, axes, shape)) is not None)
        if digits and len(digits) == len(store.indices) and _is_whole_index(digits, shape):
            yield params[hash(weights)], Relaid(block.name_hint, digits, merge_digits(digits))


def _is_whole_index(digits: Sequence[Digit], shape: Sequence[Any]) -> bool:
    """Return whether each axis's digits together give its whole index, without overlap."""
    for axis, extent in enumerate(map(int, shape)):
        place = 1
        for digit in sorted(d for d in digits if d.axis == axis and d.low < d.high):
            if digit.low != place or digit.high % digit.low:
                return False
            place = digit.high
        if place != extent:
            return False
    return True


def _is_same(index: Any, var: Any) -> bool:
    return isinstance(index, tirx.Var) and index.same_as(var)


def _digit(index: Any, axes: Sequence[Any], shape: Sequence[Any]) -> Digit | None:
    if isinstance(index, tirx.IntImm) and int(index) == 0:
        return Digit(0, 1, 1)
    if isinstance(index, tirx.Var):
        axis = next(n for n, var in enumerate(axes) if _is_same(index, var))
        return Digit(axis, 1, int(shape[axis]))
    if not isinstance(index, tirx.FloorDiv | tirx.FloorMod) or not isinstance(index.b, tirx.IntImm):
        return None
    digit, divisor = _digit(index.a, axes, shape), int(index.b)
    if digit is None:
        return None
    if isinstance(index, tirx.FloorDiv):
        return Digit(digit.axis, digit.low * divisor, digit.high)
    return Digit(digit.axis, digit.low, min(digit.high, digit.low * divisor))
