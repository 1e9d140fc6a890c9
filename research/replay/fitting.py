"""Fits a stored sketch to one workload.

Sketches are named by their traces, and a trace does not tell how long the loops are: workloads that differ in
sizes alone share a row of the dataset, whose extents and locations are those of the workload that came first.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod

from workers.search.space import Candidate, Choice, ChoiceKind, Sketch


def fitted(sketch: Sketch, candidates: Sequence[Candidate]) -> Sketch:
    """The sketch with the extents that its candidates' tiles have, and the locations that they take."""
    starts = [0, *accumulate(choice.width for choice in sketch.choices)]
    parts = [
        [c.decisions[start : start + choice.width] for c in candidates]
        for start, choice in zip(starts, sketch.choices, strict=False)
    ]
    choices = tuple(_fitted(choice, part) for choice, part in zip(sketch.choices, parts, strict=True))
    return replace(sketch, choices=choices)


def _fitted(choice: Choice, decisions: Sequence[tuple[int, ...]]) -> Choice:
    if choice.kind is ChoiceKind.TILE:
        return replace(choice, extent=prod(decisions[0]))
    if choice.kind is ChoiceKind.LOCATION:
        return replace(choice, values=tuple(sorted({value for (value,) in decisions})), weights=())
    return choice
