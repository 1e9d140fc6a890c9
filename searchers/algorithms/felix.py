"""Gradient ascent on schedules over a differentiable surrogate of the cost model, as in Felix."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from costmodels.base import Column
from costmodels.dense_layers import AdamW, Tensor, forward, gradients, initial, slopes
from searchers.base import MUTATION, RANDOM
from searchers.decision_vector_encoding import Genes, Points, genes_of
from searchers.learning.exploring_learner import HistorySample, Learner
from searchers.learning.scorer import ScoredRows, Scorer
from searchers.space import Candidate
from searchers.tile_factorizations import Rows

HIDDEN: Final = (48, 48)
STEPS: Final = 300
BATCH: Final = 96
RATE: Final = 6e-3
ASCENT: Final = "ascent"
TINY: Final = 1e-12
PROBE: Final = 0.01


class Surrogate:
    """Learns scores of points (`searchers.decision_vector_encoding`); says in which direction they rise."""

    def __init__(self, genes: Genes, points: Points, scores: Column, rng: np.random.Generator) -> None:
        logs = genes.logs()
        spread = (points @ logs).std(axis=0)
        used = np.flatnonzero(spread > 0)
        self._to_inputs = (logs[:, used] / spread[used]).astype(np.float32)
        self._middle = (points @ self._to_inputs).mean(axis=0)
        self._layers = initial(rng, 1, (len(used), *HIDDEN, 1))
        self._layers[-1] += np.float32(scores.mean())
        with threadpool_limits(1, user_api="blas"):
            # Fast candidates weigh more, because the search climbs from them.
            rows = self._rows(points)[0]
            weight = (np.exp(np.minimum(0.0, scores - scores.max())) + 0.1).astype(np.float32)
            adam = AdamW(self._layers, RATE, STEPS)
            for _ in range(STEPS):
                batch = rng.integers(len(rows), size=BATCH)
                values = forward(self._layers, rows[batch][None])
                error = values[-1][:, :, 0] - scores[batch].astype(np.float32)
                adam.step(gradients(self._layers, values, error * weight[batch] / BATCH))

    def __call__(self, points: Points) -> Column:
        """The score of each point."""
        return forward(self._layers, self._rows(points))[-1][0, :, 0].astype(np.float64)

    def slope(self, points: Points) -> Points:
        """The gradient of each point's score."""
        with threadpool_limits(1, user_api="blas"):
            back = slopes(self._layers, forward(self._layers, self._rows(points)))[0]
            return np.asarray(back @ self._to_inputs.T, dtype=np.float64)

    def _rows(self, points: Points) -> Tensor:
        rows: Tensor = (points @ self._to_inputs - self._middle).astype(np.float32)
        return rows[None]


@dataclass(eq=False, kw_only=True)
class Felix(Learner):
    """Climbs from many starts in the space of log factors; what it passes joins the pool, rounded.

    After "Felix: Optimizing Tensor Programs with Gradient Descent" (ASPLOS'24). Each sketch has a surrogate,
    taught by the cost model on random candidates and mutants of the best, and by what was measured. Steps
    keep a length that shrinks; after each, points are moved to where factors multiply up, and rounded to
    divisors.

    Where it differs: Felix writes a program's features as differentiable formulas of its tile sizes and
    descends the cost model itself; here the models are trees, so a network learns from them what a gradient
    needs, anew in each round. Constraints are not penalised: factors are projected, limits are repaired by
    rounding. Lists are relaxed too, to shares of their values. What the cost model says of the rounded points
    decides, not the surrogate. Without a cost model, kernel regression over the task's measurements teaches.
    With `learning` off each step has a random direction and the same length: the twin that shows what the
    gradient brings.
    """

    begun: int = 256
    steps: int = 8
    longest: float = 3.0  # of a step, in exponents of primes
    shortest: float = 0.5
    greed: float = 10.0
    learning: bool = True

    def explore(self, scout: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        # Look at what surrogates learn from: candidates from anywhere, and mutants of the best.
        many = self.considered // 8
        scout.look_at(scout.space.sample(rng, many), RANDOM)
        best = [candidate for sight in scout.starts(many, self.greed, rng) for candidate in _of(sight)]
        scout.look_at(scout.space.mutate_all(rng, best), MUTATION)
        count = min(self.begun, max(2, (self.considered - len(scout)) // self.steps))
        measured = dict(zip(sample.candidates, sample.label.tolist(), strict=True))
        starts = self._starts(scout, count, rng)
        for known in scout.memory():
            if rows := starts.get(known.sketch.key):
                passed = self._climbed(np.concatenate(rows), known, measured, rng)
                scout.look([(known.sketch, passed)], ASCENT)

    def _starts(self, scout: Scorer, count: int, rng: np.random.Generator) -> dict[str, list[Rows]]:
        """By sketch; half of them good, half anywhere."""
        starts: dict[str, list[Rows]] = {}
        for many, greed in ((count // 2, self.greed), (count - count // 2, 0.0)):
            for sight in scout.starts(many, greed, rng):
                starts.setdefault(sight.sketch.key, []).append(sight.rows)
        return starts

    def _climbed(
        self, starts: Rows, known: ScoredRows, measured: dict[Candidate, float], rng: np.random.Generator
    ) -> Rows:
        """All that is passed on the ways up from some candidates."""
        genes = genes_of(known.sketch)
        scores = np.array([measured.get(c, p) for c, p in zip(_of(known), known.promise, strict=True)])
        surrogate = Surrogate(genes, genes.encode(known.rows), scores, rng) if self.learning else None
        points, passed = genes.encode(starts), []
        for length in np.geomspace(self.longest, self.shortest, self.steps):
            way = surrogate.slope(points) if surrogate else rng.normal(size=points.shape)
            # Along what factors that multiply up allow, so that its length is not lost to the projection.
            along = genes.project(points + PROBE * _unit(way)) - points
            points = genes.project(points + length * _unit(along))
            passed.append(genes.decode(points))
        return np.concatenate(passed)


def _unit(ways: Points) -> Points:
    return np.asarray(ways / np.maximum(TINY, np.linalg.norm(ways, axis=1, keepdims=True)))


def _of(sight: ScoredRows) -> Iterator[Candidate]:
    return (Candidate(sight.sketch.key, tuple(row)) for row in sight.rows.tolist())
