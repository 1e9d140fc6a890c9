"""A Space of recorded candidates only, so that each has an answer."""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.errors import NotFound
from research.replay.recorded_task import RecordedTask
from searchers.base import DEFAULT, Trial, means_of
from searchers.decision_features import decision_rows, places_by_sketch
from searchers.decision_space import DecisionSpace
from searchers.decision_vector_encoding import Points, genes_of
from searchers.space import Candidate, Sketch

FAR: Final = np.inf
BLOCK: Final = 1024  # candidates compared at once, so that many of them stay in the cache
MAX_DEFAULTS: Final = 12
# The share of a sample that is drawn evenly, so that every recorded candidate can be reached.
EVEN_SHARE: Final = 0.25


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


class RecordedSpace(DecisionSpace):
    """The candidates of one recorded task.

    What `sample`, `mutate` and `cross` of the real space would return is replaced by the recorded candidate
    that is nearest to it. So a step is longer here, a draw falls more often on candidates that stand alone,
    and the recorded ones are mostly good: figures compare searchers here, not with the real space.
    """

    def __init__(self, task: RecordedTask) -> None:
        super().__init__(task.sketches, task.descriptors, task.machine)
        self.task = task
        self._trials = {trial.candidate: trial for trial in task.trials}
        self.candidates = tuple(self._trials)  # in the order they were measured
        self._neighbours = {
            name: Neighbours(self.by_key[name], [self.candidates[at] for at in lines])
            for name, lines in places_by_sketch([each.sketch for each in self.candidates]).items()
        }

    @property
    def optimum_us(self) -> float:
        """The least latency of all candidates. Raises NotFound where none was ever timed."""
        if (optimum := self.task.optimum_us) is None:
            raise NotFound(
                f"every recorded candidate of {self.task.name} failed", hint="mallorn record MODEL.onnx"
            )
        return optimum

    def measure(self, candidate: Candidate) -> Trial:
        """Its recorded result. Raises NotFound for a candidate that was not recorded."""
        if (trial := self._trials.get(candidate)) is None:
            raise NotFound(
                f"{candidate} of {self.task.name} is not in the recording", hint="mallorn record MODEL.onnx"
            )
        return replace(trial, origin="")  # the caller knows who proposes it this time

    def sample(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        near = self.nearest(super().sample(rng, count))
        evenly = rng.random(count) < EVEN_SHARE
        lines = rng.integers(len(self.candidates), size=count)
        return [
            self.candidates[line] if even else candidate
            for candidate, even, line in zip(near, evenly, lines, strict=True)
        ]

    def mutate_all(self, rng: np.random.Generator, parents: Sequence[Candidate]) -> list[Candidate]:
        return self.nearest(super().mutate_all(rng, parents), but=parents)

    def cross_all(
        self, rng: np.random.Generator, mothers: Sequence[Candidate], fathers: Sequence[Candidate]
    ) -> list[Candidate]:
        return self.nearest(super().cross_all(rng, mothers, fathers))

    def defaults(self) -> list[Candidate]:
        """The defaults of the recording searcher; without any, the first that were timed."""
        marked = [t.candidate for t in self.task.trials if means_of(t.origin) == DEFAULT]
        timed = [t.candidate for t in self.task.trials if t.latency_us is not None]
        return (marked or timed)[:MAX_DEFAULTS]

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [candidate in self._trials for candidate in candidates]

    def nearest(self, asked: Sequence[Candidate], but: Sequence[Candidate] = ()) -> list[Candidate]:
        """For each the nearest recorded candidate of its sketch, not that of `but` if there is another."""
        found = list(asked)
        for name, lines in places_by_sketch([candidate.sketch for candidate in asked]).items():
            others = [but[at] for at in lines] if but else []
            near = self._neighbours[name].nearest([asked[at] for at in lines], others)
            for at, candidate in zip(lines, near, strict=True):
                found[at] = candidate
        return found

    def nearest_of(self, free: Container[Candidate], asked: Candidate) -> Candidate | None:
        """The nearest candidate of the same sketch that is among those; None where there is none."""
        return self._neighbours[asked.sketch].nearest_of(free, asked)
