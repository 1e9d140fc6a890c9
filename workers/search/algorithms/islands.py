"""Populations separated by sketch, so that parents match and slow starters survive."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workers.search.features import places_by_sketch
from workers.search.space import Candidate

Lines = NDArray[np.int64]
Scores = NDArray[np.float32]

LEAST_SHARE = 0.25  # of an equal share, for even the worst island


def islands(candidates: Sequence[Candidate]) -> list[Lines]:
    """The members of each sketch, in the order of their first members."""
    names = [candidate.sketch for candidate in candidates]
    return [np.array(lines, dtype=np.int64) for lines in places_by_sketch(names).values()]


def shares(fitness: Scores, members: Sequence[Lines], champions: int) -> NDArray[np.float64]:
    """Each island's share of births: by the mean of its best members, with a floor."""
    means = [float(np.sort(fitness[lines])[-champions:].mean()) for lines in members]
    heat = np.exp(np.array(means) - max(means))
    fair = LEAST_SHARE / len(members)
    return np.asarray(fair + (1 - LEAST_SHARE) * heat / heat.sum())


def tournament(
    rng: np.random.Generator, fitness: Scores, lines: Lines, winners: int, contestants: int
) -> Lines:
    """The winners of this many small tournaments on an island."""
    drawn = lines[rng.integers(len(lines), size=(winners, contestants))]
    best = fitness[drawn].argmax(axis=1)
    return np.asarray(drawn[np.arange(winners), best])


def elite(fitness: Scores, lines: Lines, count: int) -> Lines:
    """The best members of an island, best first."""
    return np.asarray(lines[np.argsort(-fitness[lines], kind="stable")[:count]])
