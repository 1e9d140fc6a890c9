"""Predicts the gain of a step from the gains of earlier steps between measured neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.base import Column
from searchers.bounded_trial_history import TimedCandidates
from searchers.decision_features import decision_rows, places_by_sketch
from searchers.decision_vector_encoding import Points, genes_of
from searchers.feature_scaling import squared_distances
from searchers.space import Candidate, Space

NEIGHBOURS = 3  # steps taken from each measured candidate
DOUBT = 1.0  # prior weight of "a step changes nothing"


@dataclass(frozen=True)
class StepGains:
    """Steps between measured neighbours of one sketch: unit vectors, and the log speed-up per unit."""

    directions: Points
    gains: Column

    def expected(self, moves: Points) -> Column:
        """The expected gain of moves: earlier steps weighed by how parallel they are, negative if opposed."""
        lengths = np.linalg.norm(moves, axis=1)
        cosines = moves @ self.directions.T / np.maximum(lengths, 1e-9)[:, None]
        told = (cosines * np.abs(cosines)) @ self.gains
        return np.asarray(lengths * told / (DOUBT + (cosines**2).sum(axis=1)))


class Directions:
    """The steps of every sketch; for a sketch that was never measured no gain is expected."""

    def __init__(self, space: Space, measured: TimedCandidates) -> None:
        self._space = space
        self._steps = {
            key: _steps(self._points(measured.candidates, key, lines), measured.slowdown[lines])
            for key, lines in places_by_sketch([each.sketch for each in measured.candidates]).items()
            if len(lines) > 1
        }

    def expected(self, old: Sequence[Candidate], new: Sequence[Candidate]) -> Column:
        """The log speed-up to expect of each step; both ends are of the same sketch."""
        gains = np.zeros(len(old))
        for key, lines in places_by_sketch([candidate.sketch for candidate in old]).items():
            if steps := self._steps.get(key):
                moves = self._points(new, key, lines) - self._points(old, key, lines)
                gains[lines] = steps.expected(moves)
        return gains

    def _points(self, candidates: Sequence[Candidate], key: str, lines: Sequence[int]) -> Points:
        sketch = self._space.by_key[key]
        return genes_of(sketch).encode(decision_rows(sketch, candidates, lines))


def _steps(points: Points, slowdown: Column) -> StepGains:
    """From each point to its nearest neighbours."""
    distances = squared_distances(points, points)
    np.fill_diagonal(distances, np.inf)
    near = np.argsort(distances, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(points) - 1)]
    start = np.repeat(np.arange(len(points)), near.shape[1])
    moves = points[near.ravel()] - points[start]
    lengths = np.maximum(np.linalg.norm(moves, axis=1), 1e-9)
    gains = slowdown[start] - slowdown[near.ravel()]
    return StepGains(moves / lengths[:, None], gains / lengths)
