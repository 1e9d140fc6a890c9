"""Choose, for a model tuned at several sizes (points), which point computes which input."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Final

from mallorn.core.values.dynamic_shapes import Dynamic, Rule

# Factor for the cost of slicing the inputs of parts and concatenating their outputs.
IN_PARTS: Final = 1.03
Costs = Sequence[float]  # per point, in microseconds


def add_dispatch_rules(dynamic: Dynamic, tasks_us: Mapping[str, float], start_us: float = 0.0) -> Dynamic:
    """Add rules to a model's free dimensions: which tuned size computes inputs of which
    sizes. A size costs its tasks' latencies (or 0) plus `start_us`; the cheapest wins."""
    costs = [
        start_us + sum(tasks_us.get(task, 0.0) * count for task, count in calls.items())
        for calls in dynamic.calls
    ]
    return dynamic.model_copy(update={"rules": choose_dispatch_rules(dynamic, costs)})


def dispatch_to_next_size(dynamic: Dynamic) -> Dynamic:
    """Return the free dimensions with rules by which the smallest tuned size that is large
    enough computes an input, so that each tuned size can be timed by an input of it."""
    rules = [
        Rule(upto=dict(point), point=index)
        for index, point in sorted(enumerate(dynamic.points), key=lambda pair: prod(pair[1].values()))
    ]
    return dynamic.model_copy(update={"rules": rules})


def choose_dispatch_rules(dynamic: Dynamic, costs: Costs, at_most: Costs = ()) -> list[Rule]:
    """Return rules on which point (tuned size) computes which inputs, the smallest first.

    Normally the smallest point that is large enough computes an input. A larger one is used
    only if its upper bound in `at_most` is lower than that point's cost, so that a
    disturbed timing does not divert its inputs permanently. Inputs may be split into parts
    along one dimension only: of those that allow it, the one whose sizes differ most.
    """
    names = [name for name in dynamic.ranges if name not in dynamic.growing_dimensions]
    spreads = {name: dynamic.ranges[name][1] / dynamic.ranges[name][0] for name in dynamic.divided}
    parted = max(spreads, key=lambda name: spreads[name], default="")
    undivided = [name for name in names if name != parted]
    tuned_sizes = [sorted({point[name] for point in dynamic.points}) for name in undivided]
    rules: list[Rule] = []
    for sizes in product(*tuned_sizes):
        upto = dict(zip(undivided, sizes, strict=True))
        if parted:
            rules += _rules(dynamic, costs, at_most or costs, upto, parted)
        else:
            point_costs = _point_costs(dynamic, costs, at_most or costs, _points_large_enough(dynamic, upto))
            rules.append(Rule(upto=upto, point=min(point_costs, key=lambda index: point_costs[index])))
    return rules


def _point_costs(dynamic: Dynamic, costs: Costs, at_most: Costs, room: Sequence[int]) -> dict[int, float]:
    """Return the cost of each point in `room`, the points that are large enough for an
    input: for the smallest its own cost, for others the upper bound in `at_most`."""
    nearest = min(room, key=lambda index: prod(dynamic.points[index].values()))
    return {index: at_most[index] for index in room} | {nearest: costs[nearest]}


def _points_large_enough(dynamic: Dynamic, sizes: Mapping[str, int]) -> list[int]:
    return [i for i, p in enumerate(dynamic.points) if all(p[name] >= size for name, size in sizes.items())]


def _rules(dynamic: Dynamic, costs: Costs, at_most: Costs, upto: dict[str, int], name: str) -> list[Rule]:
    """Return rules for sizes of a dimension that may be split; `upto` bounds the others."""
    extents = {index: dynamic.points[index][name] for index in reversed(_points_large_enough(dynamic, upto))}
    best_costs: list[float] = [0.0]  # by size
    choices: list[tuple[int, str]] = []  # point of each size; the dimension's name if only a part
    for size in range(1, dynamic.ranges[name][1] + 1):
        with_room = [index for index, extent in extents.items() if extent >= size]
        point_costs = _point_costs(dynamic, costs, at_most, with_room)
        undivided = [(point_costs[index], index, "") for index in with_room]
        parts = [
            ((costs[index] + best_costs[size - extent]) * IN_PARTS, index, name)
            for index, extent in extents.items()
            if extent < size
        ]
        cost, index, first = min(undivided + parts, key=lambda entry: entry[0])
        best_costs.append(cost)
        choices.append((index, first))
    rules = []
    for size, (point, first) in enumerate(choices, 1):
        if size == len(choices) or choices[size] != (point, first):
            rules.append(Rule(upto=upto | {name: size}, point=point, first=first))
    return rules
