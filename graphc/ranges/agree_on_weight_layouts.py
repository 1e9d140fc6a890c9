"""Choose one layout for weights that several functions read, so that they are stored once.

Every schedule re-lays weights for its own loops, and a range's points have different
schedules. Mostly they differ only in the shape of one order of numbers, and in how many
columns are read at a time. A function that reads few columns can read them from a wider group,
because a group's columns are contiguous.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tvm
from tvm import relax, tirx
from tvm.s_tir import SBlock, Schedule

from graphc.core.graph_rewriting import collect

RELAID = "meta_schedule.layout_rewrite_preproc"
Place = tuple[int, str, int]  # index of a module, name of a function, index of a parameter


class Digit(NamedTuple):
    """A digit of an index into weights: `index % high // low`."""

    axis: int
    low: int
    high: int


Layout = tuple[Digit, ...]  # from the slowest to the fastest axis


class Relaid(NamedTuple):
    """How a function re-lays a parameter."""

    block: str
    digits: Layout  # one per axis of the re-laid weights
    layout: Layout  # digits with neighbours merged, which only differ in shape


def agreed(mods: Sequence[Any]) -> list[Any]:
    """Return the modules with as few layouts per weight as keep vector reads contiguous."""
    relaid_by_place = {
        (place, var.name_hint, param): relaid
        for place, mod in enumerate(mods)
        for var, function in mod.functions.items()
        if isinstance(function, tirx.PrimFunc)
        for param, relaid in _relaid(function)
    }
    chosen: dict[Place, Layout] = {}
    for group in _sharing(mods, relaid_by_place):
        if len({relaid_by_place[place].digits for place in group}) > 1:
            chosen |= _choose({place: relaid_by_place[place].layout for place in group})
    return [_rewritten(mod, place, relaid_by_place, chosen) for place, mod in enumerate(mods)]


def joined(digits: Layout) -> Layout:
    """Remove digits of a single value, and merge adjacent digits of the same index."""
    merged: list[Digit] = []
    for digit in digits:
        if merged and merged[-1].axis == digit.axis and merged[-1].low == digit.high:
            merged[-1] = Digit(digit.axis, digit.low, merged[-1].high)
        elif digit.low < digit.high:
            merged.append(digit)
    return tuple(merged)


def fits(own: Layout, other: Layout) -> bool:
    """Return whether numbers that are contiguous in the layout `own` are so in `other`."""
    if not own or own == other:
        return own == other
    (axis, low, high), last = own[-1], other[-1]
    return (last.axis, last.low) == (axis, low) and last.high % high == 0


def _choose(layouts: Mapping[Place, Layout]) -> dict[Place, Layout]:
    """Choose layouts, the widest first; among equals that of the smallest point."""
    chosen: list[Layout] = []
    layout_by_place = {}
    for place in sorted(layouts, key=lambda place: (-_run(layouts[place]), place)):
        own = layouts[place]
        layout = next((each for each in chosen if fits(own, each)), None)
        if layout is None:
            chosen.append(own)
        layout_by_place[place] = layout or own
    return layout_by_place


def _run(layout: Layout) -> int:
    return layout[-1].high // layout[-1].low if layout else 1


def _relaid(function: Any) -> Iterator[tuple[int, Relaid]]:
    """Yield the parameters that a function re-lays by digits and reads number by number."""
    params = {hash(param): number for number, param in enumerate(function.params)}
    blocks = collect(function, SBlock)
    # Skip parameters of tensor intrinsics, which expect fixed distances between numbers.
    matched = {hash(match.source.source) for block in blocks for match in block.match_buffers}
    for block in blocks:
        store = block.body
        if RELAID not in block.annotations or not isinstance(store, tirx.BufferStore):
            continue
        weights = getattr(store.value, "source", None)
        digits = (
            _digits(block, store) if hash(weights) in params and hash(store.buffer) not in matched else ()
        )
        if digits:
            yield params[hash(weights)], Relaid(block.name_hint, digits, joined(digits))


def _digits(block: Any, store: Any) -> Layout:
    """Return the digits of each axis of re-laid weights; empty if some index is not a digit."""
    axes, shape = [each.var for each in block.iter_vars], store.value.source.shape
    indices = store.value.indices
    if len(indices) != len(axes) or not all(map(_same, indices, axes)):
        return ()
    digits = [_digit(index, axes, shape) for index in store.indices]
    valid = tuple(digit for digit in digits if digit is not None)
    return valid if len(valid) == len(digits) and _whole(valid, shape) else ()


def _same(index: Any, var: Any) -> bool:
    return isinstance(index, tirx.Var) and index.same_as(var)


def _digit(index: Any, axes: Sequence[Any], shape: Sequence[Any]) -> Digit | None:
    if isinstance(index, tirx.IntImm) and int(index) == 0:
        return Digit(0, 1, 1)
    if isinstance(index, tirx.Var):
        axis = next(n for n, var in enumerate(axes) if _same(index, var))
        return Digit(axis, 1, int(shape[axis]))
    if not isinstance(index, tirx.FloorDiv | tirx.FloorMod) or not isinstance(index.b, tirx.IntImm):
        return None
    of, by = _digit(index.a, axes, shape), int(index.b)
    if of is None:
        return None
    if isinstance(index, tirx.FloorDiv):
        return Digit(of.axis, of.low * by, of.high)
    return Digit(of.axis, of.low, min(of.high, of.low * by))


def _whole(digits: Sequence[Digit], shape: Sequence[Any]) -> bool:
    """Return whether the digits of every axis together cover its whole index exactly once."""
    for axis, extent in enumerate(map(int, shape)):
        place = 1
        for digit in sorted(each for each in digits if each.axis == axis and each.low < each.high):
            if digit.low != place or digit.high % digit.low:
                return False
            place = digit.high
        if place != extent:
            return False
    return True


def _sharing(mods: Sequence[Any], relaid_by_place: Mapping[Place, Relaid]) -> list[list[Place]]:
    """Group the parameters that receive the same weights, directly or through other groups."""
    groups: dict[Any, list[Place]] = {}
    for place, mod in enumerate(mods):
        for var, argument, param in _given(mod):
            if (place, var, param) in relaid_by_place:
                groups.setdefault(argument, []).append((place, var, param))
    group_of: dict[Place, list[Place]] = {}
    for places in groups.values():
        together = list(dict.fromkeys(p for place in places for p in group_of.get(place, [place])))
        group_of.update(dict.fromkeys(together, together))
    return list({id(group): group for group in group_of.values()}.values())


def _given(mod: Any) -> Iterator[tuple[str, Any, int]]:
    """Yield the function, constant and parameter index of every call with a constant."""
    calls = [
        call
        for graph in mod.functions.values()
        if isinstance(graph, relax.Function)
        for call in collect(graph, relax.Call)
    ]
    for call in calls:
        if getattr(call.op, "name", "") == "relax.call_tir":
            for number, argument in enumerate(call.args[1]):
                if isinstance(argument, tvm.ir.GenericConst):
                    yield call.args[0].name_hint, argument, number


def _rewritten(mod: Any, place: int, entries: Mapping[Place, Relaid], chosen: Mapping[Place, Layout]) -> Any:
    functions = dict(mod.functions.items())
    for var, function in functions.items():
        changes = [(entries[key], chosen[key]) for key in chosen if key[:2] == (place, var.name_hint)]
        for relaid, layout in changes:
            function = _with_layout(function, relaid, layout)
        functions[var] = function
    return tvm.IRModule(functions, attrs=mod.attrs)


def _with_layout(function: Any, relaid: Relaid, layout: Layout) -> Any:
    if relaid.digits == layout:
        return function
    schedule = Schedule(function, debug_mask="none")

    def moved(*at: Any) -> list[Any]:
        return [_value(digit, relaid.digits, at) for digit in layout]

    schedule.transform_layout(relaid.block, ("write", 0), moved)
    return schedule.mod["main"].with_attrs(function.attrs)


def _value(target: Digit, digits: Layout, at: Sequence[Any]) -> Any:
    """Return a digit of the index whose digits have the values `at`."""
    parts = zip(digits, at, strict=True)
    index = sum(part * digit.low for digit, part in parts if digit.axis == target.axis)
    return index % target.high // target.low
