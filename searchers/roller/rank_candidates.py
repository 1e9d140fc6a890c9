"""The candidates of a program in the order in which they should be tried."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from costmodels.base import Column, Indices
from mallorn.core.values.machine import Machine
from searchers.decision_features import decision_rows, places_by_sketch
from searchers.loop_nest import Nest
from searchers.roller.constructor import FIXED_US, Constructor, Guesses
from searchers.space import Candidate, Sketch, Space

_LOOKED_AT: Final = 1024  # of the best, among which there is a choice
_LEAST: Final = 64  # that are ranked at once: every round of a task asks for some more
_LATER: Final = 1e-6
_ALIKE: Final = 0.3  # how much slower a guess counts that is wholly like one before it


def ranked(
    sketches: Sequence[Sketch], nests: Sequence[Nest], machine: Machine, count: int
) -> list[Candidate]:
    """Up to `count` candidates: the best guess, then what is nearly as good and unlike those before it."""
    made = max(_LEAST, 1 << (count - 1).bit_length())  # a longer ranking begins with every shorter one
    return list(_ranked(tuple(sketches), tuple(nests), machine.model_dump_json(), made)[:count])


@lru_cache(maxsize=256)
def _ranked(
    sketches: tuple[Sketch, ...], nests: tuple[Nest, ...], machine: str, count: int
) -> tuple[Candidate, ...]:
    # The last sketch fuses most.
    sketches = sketches[::-1]
    constructor = Constructor(nests, Machine.model_validate_json(machine))
    found = [constructor.guesses(sketch) for sketch in sketches]
    sketch = np.concatenate([np.full(len(each.us), at) for at, each in enumerate(found)])
    place = np.concatenate([np.arange(len(each.us)) for each in found])
    us = np.concatenate([each.us for each in found])
    # No model knows how good a sketch without choices is: it is tried right after the best guess.
    us[us == FIXED_US] = min(FIXED_US, us.min() * (1 + _LATER))
    best = np.argsort(us, kind="stable")[:_LOOKED_AT]
    order = best[_spread(us[best], _aspects(found, sketch[best], place[best]), count)]
    rows = [(sketches[sketch[at]], found[sketch[at]].rows[place[at]]) for at in order]
    return tuple(Candidate(of.key, tuple(row.tolist())) for of, row in rows)


def _aspects(found: Sequence[Guesses], sketch: Indices, place: Indices) -> Indices:
    """What guesses may have in common, a column each; sketches are one of them."""
    widest = max(each.aspects.shape[1] for each in found)
    table = np.full((len(sketch), widest + 1), -1, dtype=np.int64)
    for row, (of, at) in enumerate(zip(sketch, place, strict=True)):
        known = found[of].aspects[at]
        table[row, : len(known)] = known
        table[row, -1] = of
    return table


def _spread(us: Column, aspects: Indices, count: int) -> list[int]:
    """Places of the best that are unlike each other, greedily."""
    alike = np.zeros(len(us))
    free = np.ones(len(us), dtype=np.bool_)
    chosen: list[int] = []
    while len(chosen) < min(count, len(us)):
        at = int(np.argmin(np.where(free, us * (1 + _ALIKE * alike), np.inf)))
        chosen.append(at)
        free[at] = False
        alike = np.maximum(alike, (aspects == aspects[at]).mean(axis=1))
    return chosen


def losses(space: Space, candidates: Sequence[Candidate]) -> Column:
    """The log of how much longer each probably takes than the best of them that there is a model of.

    Zero for those of sketches without a model.
    """
    constructor = Constructor(space.nests, space.machine)
    log_us = np.full(len(candidates), np.nan)
    for key, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
        sketch = space.by_key[key]
        us = constructor.time_us(sketch, decision_rows(sketch, candidates, lines))
        if us is not None:
            log_us[lines] = np.log(us)
    known = log_us[~np.isnan(log_us)]
    return np.asarray(np.nan_to_num(log_us - known.min(initial=np.inf), nan=0.0))


def modelled_us(space: Space, candidate: Candidate) -> float | None:
    """What one candidate should take; None where there is no model of its sketch, or the space lacks it."""
    sketch = space.by_key.get(candidate.sketch)
    if sketch is None:
        return None
    us = Constructor(space.nests, space.machine).time_us(sketch, decision_rows(sketch, [candidate], [0]))
    return None if us is None else float(us[0])
