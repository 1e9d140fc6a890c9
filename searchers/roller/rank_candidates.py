"""Rank the candidates of a program in the order in which they should be tried."""

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

_LOOKED_AT: Final = 1024  # fastest guesses that are ranked
_LEAST: Final = 64  # least length of a ranking: every round of a task needs a longer one
_LATER: Final = 1e-6
_ALIKE: Final = 0.3  # relative penalty of a guess that has all aspects of an earlier one


def ranked(
    sketches: Sequence[Sketch], nests: Sequence[Nest], machine: Machine, count: int
) -> list[Candidate]:
    """Return up to `count` candidates: fast guesses that differ from earlier ones, best first."""
    length = max(_LEAST, 1 << (count - 1).bit_length())  # longer rankings begin with shorter ones
    return list(_ranked(tuple(sketches), tuple(nests), machine.model_dump_json(), length)[:count])


@lru_cache(maxsize=256)
def _ranked(
    sketches: tuple[Sketch, ...], nests: tuple[Nest, ...], machine: str, count: int
) -> tuple[Candidate, ...]:
    # Begin with the last sketch, which fuses most.
    sketches = sketches[::-1]
    constructor = Constructor(nests, Machine.model_validate_json(machine))
    guesses = [constructor.guesses(sketch) for sketch in sketches]
    sketch = np.concatenate([np.full(len(part.us), index) for index, part in enumerate(guesses)])
    row_index = np.concatenate([np.arange(len(part.us)) for part in guesses])
    us = np.concatenate([part.us for part in guesses])
    # There is no time model for a sketch without choices: try it right after the best guess.
    us[us == FIXED_US] = min(FIXED_US, us.min() * (1 + _LATER))
    best = np.argsort(us, kind="stable")[:_LOOKED_AT]
    order = best[_spread(us[best], _aspects(guesses, sketch[best], row_index[best]), count)]
    rows = [(sketches[sketch[index]], guesses[sketch[index]].rows[row_index[index]]) for index in order]
    return tuple(Candidate(chosen_sketch.key, tuple(row.tolist())) for chosen_sketch, row in rows)


def _aspects(guesses: Sequence[Guesses], sketch: Indices, place: Indices) -> Indices:
    """Return the guesses' aspects (one per column) and, in the last column, their sketch."""
    widest = max(part.aspects.shape[1] for part in guesses)
    table = np.full((len(sketch), widest + 1), -1, dtype=np.int64)
    for row, (sketch_index, index) in enumerate(zip(sketch, place, strict=True)):
        row_aspects = guesses[sketch_index].aspects[index]
        table[row, : len(row_aspects)] = row_aspects
        table[row, -1] = sketch_index
    return table


def _spread(us: Column, aspects: Indices, count: int) -> list[int]:
    """Return indices of fast and dissimilar guesses, selected greedily."""
    similarity = np.zeros(len(us))
    free = np.ones(len(us), dtype=np.bool_)
    selected: list[int] = []
    while len(selected) < min(count, len(us)):
        index = int(np.argmin(np.where(free, us * (1 + _ALIKE * similarity), np.inf)))
        selected.append(index)
        free[index] = False
        similarity = np.maximum(similarity, (aspects == aspects[index]).mean(axis=1))
    return selected


def losses(space: Space, candidates: Sequence[Candidate]) -> Column:
    """Return log(estimated time / least estimated time) of each candidate.

    0 for candidates of sketches without a time model.
    """
    constructor = Constructor(space.nests, space.machine)
    log_us = np.full(len(candidates), np.nan)
    for key, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
        sketch = space.by_key[key]
        us = constructor.time_us(sketch, decision_rows(sketch, candidates, lines))
        if us is not None:
            log_us[lines] = np.log(us)
    modelled = log_us[~np.isnan(log_us)]
    return np.asarray(np.nan_to_num(log_us - modelled.min(initial=np.inf), nan=0.0))


def modelled_us(space: Space, candidate: Candidate) -> float | None:
    """Return a candidate's estimated time; None if its sketch is unknown or has no model."""
    sketch = space.by_key.get(candidate.sketch)
    if sketch is None:
        return None
    us = Constructor(space.nests, space.machine).time_us(sketch, decision_rows(sketch, [candidate], [0]))
    return None if us is None else float(us[0])
