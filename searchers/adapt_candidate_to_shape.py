"""A candidate of one shape carried to another: the same sketch, with tiles as like as the extents allow."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import comb, prod

import numpy as np

from searchers.space import Candidate, Choice, ChoiceKind, Sketch
from searchers.tile_factorizations import Rows, TileRule, prime_powers, tilings

MOST_TILINGS = 20_000  # of one extent; more are not looked through


def carry(candidate: Candidate, made_of: Sketch, sketches: Sequence[Sketch]) -> Candidate | None:
    """The candidate in another space, well-formed there; None where no sketch is like its own.

    To its own shape it is carried unchanged. Inner tiles stay as they are as far as they divide the extent,
    the outermost takes what is left; listed values and places stay where they exist.
    """
    for sketch in _alike(made_of, sketches):
        decisions: list[int] = []
        for (columns, there), here in zip(made_of.places, sketch.choices, strict=True):
            decisions += _carried(candidate.decisions[columns], there, here)
        return Candidate(sketch.key, tuple(decisions))
    return None


def _alike(made_of: Sketch, sketches: Sequence[Sketch]) -> list[Sketch]:
    """The sketch itself if it is there, else those that choose the same things in the same order."""
    outline = _outline(made_of)
    same = [sketch for sketch in sketches if sketch.key == made_of.key and _outline(sketch) == outline]
    return same or [sketch for sketch in sketches if _outline(sketch) == outline]


def _outline(sketch: Sketch) -> tuple[tuple[ChoiceKind, int], ...]:
    return tuple((choice.kind, choice.width) for choice in sketch.choices)


def _carried(taken: tuple[int, ...], there: Choice, here: Choice) -> list[int]:
    if here.kind is ChoiceKind.TILE:
        return _tiles(taken, here)
    (value,) = taken
    if here.kind is ChoiceKind.CATEGORICAL and there.labels and here.labels:
        apart = [abs(label - there.labels[value]) for label in here.labels]
        value = apart.index(min(apart))
    return [value if value in here.values else min(here.values, key=lambda each: (abs(each - value), each))]


def _tiles(taken: tuple[int, ...], here: Choice) -> list[int]:
    if TileRule(here).well_formed(np.array([taken], dtype=np.int32)).all():
        return list(taken)
    possible = _possible(replace(here, suggested=()))
    # What is further inside is met more often, and counts more.
    weights = np.arange(here.width, dtype=np.float64)
    apart = np.abs(np.log2(possible) - np.log2(np.array(taken, dtype=np.float64))) @ weights
    return [int(factor) for factor in possible[int(np.argmin(apart))]]


@lru_cache(maxsize=512)
def _possible(choice: Choice) -> Rows:
    """Return the well-formed tilings of a choice, or a sample of them where there are too many."""
    rule, last = TileRule(choice), choice.width - 1
    if prod(comb(power + last, last) for _, power in prime_powers(choice.extent)) > MOST_TILINGS:
        return rule.sample(np.random.default_rng(0), MOST_TILINGS)
    rows = tilings(choice.extent, choice.width)
    fits = rule.well_formed(rows)
    return rows[fits] if fits.any() else rule.repair(rows)
