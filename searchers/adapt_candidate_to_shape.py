"""Adapts a candidate to another shape: the same sketch, with the most similar tiles."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import comb, prod

import numpy as np

from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch
from mallorn.searchers.tile_factorizations import Rows, TileRule, prime_powers, tilings

MOST_TILINGS = 20_000  # tilings of an extent to compare; if there are more, a sample is compared


def adapt_candidate(candidate: Candidate, own_sketch: Sketch, sketches: Sequence[Sketch]) -> Candidate | None:
    """Return the candidate adapted to another shape; None if no sketch of it is similar.

    `own_sketch` is the candidate's sketch, `sketches` are those of the other shape. The
    result is well-formed, and unchanged for the candidate's own shape. Inner tile factors
    are kept if they divide the extent, and the outermost factor gets the rest; listed
    values and locations are kept if the new sketch has them.
    """
    outline = _choice_kinds_and_widths(own_sketch)
    similar = [sketch for sketch in sketches if _choice_kinds_and_widths(sketch) == outline]
    if not similar:
        return None
    sketch = next((sketch for sketch in similar if sketch.key == own_sketch.key), similar[0])
    decisions: list[int] = []
    for (columns, old_choice), new_choice in zip(own_sketch.decision_slices, sketch.choices, strict=True):
        decisions += _adapt_choice(candidate.decisions[columns], old_choice, new_choice)
    return Candidate(sketch.key, tuple(decisions))


def _choice_kinds_and_widths(sketch: Sketch) -> tuple[tuple[ChoiceKind, int], ...]:
    return tuple((choice.kind, choice.width) for choice in sketch.choices)


def _adapt_choice(decisions: tuple[int, ...], old_choice: Choice, new_choice: Choice) -> list[int]:
    if new_choice.kind is ChoiceKind.TILE:
        if TileRule(new_choice).well_formed(np.array([decisions], dtype=np.int32)).all():
            return list(decisions)
        tilings_of_choice = _well_formed_tilings(replace(new_choice, suggested=()))
        # Inner levels have larger weights, because their loops run more often.
        weights = np.arange(new_choice.width, dtype=np.float64)
        logs = np.log2(np.array(decisions, dtype=np.float64))
        distances = np.abs(np.log2(tilings_of_choice) - logs) @ weights
        return [int(factor) for factor in tilings_of_choice[int(np.argmin(distances))]]

    (value,) = decisions
    if new_choice.kind is ChoiceKind.CATEGORICAL and old_choice.labels and new_choice.labels:
        gaps = [abs(label - old_choice.labels[value]) for label in new_choice.labels]
        value = gaps.index(min(gaps))
    if value in new_choice.values:
        return [value]
    return [min(new_choice.values, key=lambda allowed_value: (abs(allowed_value - value), allowed_value))]


@lru_cache(maxsize=512)
def _well_formed_tilings(choice: Choice) -> Rows:
    """Return the well-formed tilings of a choice, or a sample of them if there are too many."""
    rule, last = TileRule(choice), choice.width - 1
    if prod(comb(power + last, last) for _, power in prime_powers(choice.extent)) > MOST_TILINGS:
        return rule.sample(np.random.default_rng(0), MOST_TILINGS)
    rows = tilings(choice.extent, choice.width)
    fits = rule.well_formed(rows)
    return rows[fits] if fits.any() else rule.repair(rows)
