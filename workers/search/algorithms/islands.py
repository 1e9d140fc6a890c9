"""Populations kept apart by sketch: mates are of one kind, and no kind dies because another began better."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workers.search.features import places_by_sketch
from workers.search.space import Candidate

Lines = NDArray[np.int64]
Scores = NDArray[np.float32]

LEAST_SHARE = 0.25  # of an equal share: what even the worst island may breed


def islands(candidates: Sequence[Candidate]) -> list[Lines]:
    """The lines of each sketch that lives, in the order of their first members."""
    names = [candidate.sketch for candidate in candidates]
    return [np.array(lines, dtype=np.int64) for lines in places_by_sketch(names).values()]


def shares(fitness: Scores, members: Sequence[Lines], champions: int) -> NDArray[np.float64]:
    """How much each island may breed: by the mean of its champions, and never nothing."""
    means = [float(np.sort(fitness[lines])[-champions:].mean()) for lines in members]
    heat = np.exp(np.array(means) - max(means))
    fair = LEAST_SHARE / len(members)
    return np.asarray(fair + (1 - LEAST_SHARE) * heat / heat.sum())


def tournament(
    rng: np.random.Generator, fitness: Scores, lines: Lines, winners: int, contestants: int
) -> Lines:
    """The winners of as many small tournaments among the members of an island."""
    drawn = lines[rng.integers(len(lines), size=(winners, contestants))]
    best = fitness[drawn].argmax(axis=1)
    return np.asarray(drawn[np.arange(winners), best])


def elite(fitness: Scores, lines: Lines, count: int) -> Lines:
    """The best members of an island, best first."""
    return np.asarray(lines[np.argsort(-fitness[lines], kind="stable")[:count]])
