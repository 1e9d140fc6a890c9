"""The recorded candidates of one sketch as points, to find the nearest to any candidate."""

from collections.abc import Container, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from workers.search.features import decision_rows
from workers.search.genes import Points, genes_of
from workers.search.space import Candidate, Sketch

FAR: Final = np.inf
BLOCK: Final = 1024  # candidates compared at once, so that many of them stay in the cache


class Neighbours:
    """All recorded candidates of a sketch, as points: exponents of primes, and a column a value of a list."""

    def __init__(self, sketch: Sketch, candidates: Sequence[Candidate]) -> None:
        self.candidates = tuple(candidates)
        self._sketch = sketch
        self._lines = {candidate: line for line, candidate in enumerate(self.candidates)}
        self._points = self._encode(self.candidates)
        self._squares = (self._points**2).sum(axis=1)

    def nearest(self, asked: Sequence[Candidate], but: Sequence[Candidate | None] = ()) -> list[Candidate]:
        """The nearest recorded candidate of each; the one in `but` only if there is no other.

        Ties fall to the candidate that was measured first.
        """
        found: list[Candidate] = []
        for start in range(0, len(asked), BLOCK):
            distances = self.distances(asked[start : start + BLOCK])
            self._exclude(distances, but[start : start + BLOCK])
            found += [self.candidates[line] for line in distances.argmin(axis=1)]
        return found

    def nearest_of(self, free: Container[Candidate], asked: Candidate) -> Candidate | None:
        """The nearest recorded candidate in `free`; None if there is none."""
        order = np.argsort(self.distances([asked])[0], kind="stable")
        return next((self.candidates[line] for line in order if self.candidates[line] in free), None)

    def distances(self, asked: Sequence[Candidate]) -> NDArray[np.float64]:
        """Squared distances: a row for each candidate of `asked`, a column for each recorded one."""
        points = self._encode(asked)
        products = points @ self._points.T
        return np.asarray((points**2).sum(axis=1)[:, None] + self._squares - 2.0 * products)

    def _exclude(self, distances: NDArray[np.float64], but: Sequence[Candidate | None]) -> None:
        if len(self.candidates) == 1:
            return
        for row, candidate in enumerate(but):
            if candidate is not None and (line := self._lines.get(candidate)) is not None:
                distances[row, line] = FAR

    def _encode(self, candidates: Sequence[Candidate]) -> Points:
        rows = decision_rows(self._sketch, candidates, range(len(candidates)))
        return genes_of(self._sketch).encode(rows)
