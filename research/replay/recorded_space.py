"""A search space of recorded candidates only, so that each has a measured result."""

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
BLOCK: Final = 1024  # candidates compared at once, so that distances stay in the CPU cache
MAX_DEFAULTS: Final = 12
# Share of a sample that is drawn uniformly, so that every recorded candidate is reachable.
EVEN_SHARE: Final = 0.25


class Neighbours:
    """Recorded candidates of a sketch as points: prime exponents, a column per list value."""

    def __init__(self, sketch: Sketch, candidates: Sequence[Candidate]) -> None:
        self.candidates = tuple(candidates)
        self._sketch = sketch
        self._lines = {candidate: line for line, candidate in enumerate(self.candidates)}
        self._points = self._encode(self.candidates)
        self._squares = (self._points**2).sum(axis=1)

    def nearest(self, asked: Sequence[Candidate], but: Sequence[Candidate | None] = ()) -> list[Candidate]:
        """Return the nearest recorded candidate of each; `but` lists one to avoid for each.

        Ties go to the candidate measured first. `but` is ignored if it is the only candidate.
        """
        neighbours: list[Candidate] = []
        for start in range(0, len(asked), BLOCK):
            distances = self.distances(asked[start : start + BLOCK])
            self._exclude(distances, but[start : start + BLOCK])
            neighbours += [self.candidates[line] for line in distances.argmin(axis=1)]
        return neighbours

    def nearest_of(self, free: Container[Candidate], asked: Candidate) -> Candidate | None:
        """Return the nearest recorded candidate in `free`, or None if there is none."""
        order = np.argsort(self.distances([asked])[0], kind="stable")
        return next((self.candidates[line] for line in order if self.candidates[line] in free), None)

    def distances(self, asked: Sequence[Candidate]) -> NDArray[np.float64]:
        """Return squared distances: a row per candidate, a column per recorded candidate."""
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

    Results of `sample`, `mutate` and `cross` of the real space are replaced by the nearest recorded
    candidates. So mutations change more, isolated candidates are drawn more often, and most candidates
    are good: figures compare searchers with each other, not with searches of the real space.
    """

    def __init__(self, task: RecordedTask) -> None:
        super().__init__(task.sketches, task.descriptors, task.machine)
        self.task = task
        self._trials = {trial.candidate: trial for trial in task.trials}
        self.candidates = tuple(self._trials)  # in the order of measurement
        self._neighbours = {
            name: Neighbours(self.by_key[name], [self.candidates[line] for line in lines])
            for name, lines in places_by_sketch([each.sketch for each in self.candidates]).items()
        }

    @property
    def optimum_us(self) -> float:
        """The lowest recorded latency. Raises NotFound if no candidate was ever timed."""
        if (optimum := self.task.optimum_us) is None:
            raise NotFound(
                f"every recorded candidate of {self.task.name} failed", hint="mallorn record MODEL.onnx"
            )
        return optimum

    def measure(self, candidate: Candidate) -> Trial:
        """Return the recorded result. Raises NotFound if the candidate was not recorded."""
        if (trial := self._trials.get(candidate)) is None:
            raise NotFound(
                f"{candidate} of {self.task.name} is not in the recording", hint="mallorn record MODEL.onnx"
            )
        return replace(trial, origin="")  # the caller sets this search's origin

    def sample(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        near = self.nearest(super().sample(rng, count))
        is_uniform = rng.random(count) < EVEN_SHARE
        lines = rng.integers(len(self.candidates), size=count)
        return [
            self.candidates[line] if uniform else candidate
            for candidate, uniform, line in zip(near, is_uniform, lines, strict=True)
        ]

    def mutate_all(self, rng: np.random.Generator, parents: Sequence[Candidate]) -> list[Candidate]:
        return self.nearest(super().mutate_all(rng, parents), but=parents)

    def cross_all(
        self, rng: np.random.Generator, mothers: Sequence[Candidate], fathers: Sequence[Candidate]
    ) -> list[Candidate]:
        return self.nearest(super().cross_all(rng, mothers, fathers))

    def defaults(self) -> list[Candidate]:
        """Return recorded candidates with origin `default`, otherwise the first timed ones."""
        defaults = [t.candidate for t in self.task.trials if means_of(t.origin) == DEFAULT]
        timed = [t.candidate for t in self.task.trials if t.latency_us is not None]
        return (defaults or timed)[:MAX_DEFAULTS]

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [candidate in self._trials for candidate in candidates]

    def nearest(self, asked: Sequence[Candidate], but: Sequence[Candidate] = ()) -> list[Candidate]:
        """Return each one's nearest recorded candidate of its sketch, avoiding `but`."""
        neighbours = list(asked)
        for name, lines in places_by_sketch([candidate.sketch for candidate in asked]).items():
            avoided = [but[line] for line in lines] if but else []
            near = self._neighbours[name].nearest([asked[line] for line in lines], avoided)
            for line, candidate in zip(lines, near, strict=True):
                neighbours[line] = candidate
        return neighbours

    def nearest_of(self, free: Container[Candidate], asked: Candidate) -> Candidate | None:
        """Return the nearest candidate of its sketch in `free`, or None if there is none."""
        return self._neighbours[asked.sketch].nearest_of(free, asked)
