"""Which point computes which sizes, by what the points were measured to take."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Final

from mallorn.core.values.dynamic_shapes import Dynamic, Rule

# What parts cost beyond their sum and their start: they are cut out, and put together again.
IN_PARTS: Final = 1.03
Costs = Sequence[float]  # of the points


def with_rules(dynamic: Dynamic, tasks_us: Mapping[str, float], start_us: float = 0.0) -> Dynamic:
    """The range with rules, by its tasks' latencies and what the start of anything takes.

    A task without a latency counts as nothing.
    """
    costs = [
        start_us + sum(tasks_us.get(task, 0.0) * count for task, count in calls.items())
        for calls in dynamic.calls
    ]
    return dynamic.model_copy(update={"rules": rules_of(dynamic, costs)})


def to_next(dynamic: Dynamic) -> Dynamic:
    """The range with rules by which every point computes its own sizes, as timing them needs it."""
    rules = [
        Rule(upto=dict(point), point=place)
        for place, point in sorted(enumerate(dynamic.points), key=lambda each: prod(each[1].values()))
    ]
    return dynamic.model_copy(update={"rules": rules})


def rules_of(dynamic: Dynamic, costs: Costs, at_most: Costs = ()) -> list[Rule]:
    """Rules that cover every size of the range, the smallest sizes first.

    A point that is larger than it has to be is taken if what it takes `at_most` is less: what else a host did
    while the nearest one was timed must not send its sizes elsewhere, for good. Parts are cut from one
    dimension alone: of those that may be divided, the one with the widest range.
    """
    names = [name for name in dynamic.ranges if name not in dynamic.grows]
    wide = {name: dynamic.ranges[name][1] / dynamic.ranges[name][0] for name in dynamic.divided}
    parted = max(wide, key=lambda name: wide[name], default="")
    others = {name: sorted({point[name] for point in dynamic.points}) for name in names if name != parted}
    rules: list[Rule] = []
    for sizes in product(*others.values()):
        upto = dict(zip(others, sizes, strict=True))
        if parted:
            rules += _along(dynamic, costs, at_most or costs, upto, parted)
        else:
            asked = _asked(dynamic, costs, at_most or costs, _with_room(dynamic, upto))
            rules.append(Rule(upto=upto, point=min(asked, key=lambda place: asked[place])))
    return rules


def _asked(dynamic: Dynamic, costs: Costs, at_most: Costs, room: Sequence[int]) -> dict[int, float]:
    """What points with room cost: the nearest at least, others at most."""
    nearest = min(room, key=lambda place: prod(dynamic.points[place].values()))
    return {place: at_most[place] for place in room} | {nearest: costs[nearest]}


def _with_room(dynamic: Dynamic, sizes: Mapping[str, int]) -> list[int]:
    return [
        place
        for place, point in enumerate(dynamic.points)
        if all(point[name] >= size for name, size in sizes.items())
    ]


def _along(dynamic: Dynamic, costs: Costs, at_most: Costs, others: dict[str, int], name: str) -> list[Rule]:
    """Rules for a dimension that may be computed in parts, the other sizes being at most these."""
    room = {place: dynamic.points[place][name] for place in reversed(_with_room(dynamic, others))}
    best: list[float] = [0.0]  # what so many take
    found: list[tuple[int, str]] = []  # the point of each size, and whether it takes but a part
    for size in range(1, dynamic.ranges[name][1] + 1):
        with_room = [place for place, has in room.items() if has >= size]
        asked = _asked(dynamic, costs, at_most, with_room)
        whole = [(asked[place], place, "") for place in with_room]
        parts = [
            ((costs[place] + best[size - has]) * IN_PARTS, place, name)
            for place, has in room.items()
            if has < size
        ]
        cost, place, first = min(whole + parts, key=lambda entry: entry[0])
        best.append(cost)
        found.append((place, first))
    ends = [size for size, after in enumerate(found[1:], 1) if after != found[size - 1]] + [len(found)]
    return [
        Rule(upto=others | {name: size}, point=found[size - 1][0], first=found[size - 1][1]) for size in ends
    ]
