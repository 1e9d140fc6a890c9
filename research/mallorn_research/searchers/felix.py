"""Gradient ascent on schedules with a differentiable surrogate model, as in Felix."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from mallorn.costmodels.base import Column
from mallorn.searchers.base import MUTATION, RANDOM
from mallorn.searchers.learning.exploring_learner import HistorySample, Learner, ScoredRows, Scorer
from mallorn.searchers.space import Candidate
from mallorn.searchers.tile_factorizations import Rows
from mallorn_research.costmodels.dense_layers import (
    AdamW,
    Tensor,
    forward,
    gradients,
    initial,
    input_gradients,
)
from mallorn_research.searchers.decision_vector_encoding import Genes, Points, genes_of

HIDDEN: Final = (48, 48)
STEPS: Final = 300
BATCH: Final = 96
RATE: Final = 6e-3
ASCENT: Final = "ascent"
TINY: Final = 1e-12
PROBE: Final = 0.01


class Surrogate:
    """A network fit to the scores of encoded candidates (`Genes`), to get gradients."""

    def __init__(self, genes: Genes, points: Points, scores: Column, rng: np.random.Generator) -> None:
        logs = genes.log_factor_matrix()
        spread = (points @ logs).std(axis=0)
        varying = np.flatnonzero(spread > 0)
        self._to_inputs = (logs[:, varying] / spread[varying]).astype(np.float32)
        self._middle = (points @ self._to_inputs).mean(axis=0)
        self._layers = initial(rng, 1, (len(varying), *HIDDEN, 1))
        self._layers[-1] += np.float32(scores.mean())
        with threadpool_limits(1, user_api="blas"):
            # Fast candidates have larger weights, because the search starts from them.
            rows = self._rows(points)[0]
            weight = (np.exp(np.minimum(0.0, scores - scores.max())) + 0.1).astype(np.float32)
            adam = AdamW(self._layers, RATE, STEPS)
            for _ in range(STEPS):
                batch = rng.integers(len(rows), size=BATCH)
                values = forward(self._layers, rows[batch][None])
                error = values[-1][:, :, 0] - scores[batch].astype(np.float32)
                adam.step(gradients(self._layers, values, error * weight[batch] / BATCH))

    def __call__(self, points: Points) -> Column:
        return forward(self._layers, self._rows(points))[-1][0, :, 0].astype(np.float64)

    def slope(self, points: Points) -> Points:
        with threadpool_limits(1, user_api="blas"):
            back = input_gradients(self._layers, forward(self._layers, self._rows(points)))[0]
            return np.asarray(back @ self._to_inputs.T, dtype=np.float64)

    def _rows(self, points: Points) -> Tensor:
        rows: Tensor = (points @ self._to_inputs - self._middle).astype(np.float32)
        return rows[None]


@dataclass(eq=False, kw_only=True)
class Felix(Learner):
    """Gradient ascent from many starts over log tile factors; rounded points join the pool.

    After "Felix: Optimizing Tensor Programs with Gradient Descent" (ASPLOS'24). Each sketch
    has a surrogate, trained on the cost model's scores of random candidates and mutants of
    the best, and on measurements. The step length is fixed per step and shrinks. After each
    step, points are projected so that factors multiply to the extent, and rounded to
    divisors.

    Felix follows the gradient of the cost model itself. Here the cost models are trees, so
    in each round a network is trained on their scores. List choices are relaxed to shares
    of their values. The cost model, not the surrogate, scores the rounded points. Without a
    cost model, kernel regression on the task's measurements is used. With `learning` off,
    each step has a random direction and the same length.
    """

    begun: int = 256
    steps: int = 8
    longest: float = 3.0  # length of the first step, in exponents of primes
    shortest: float = 0.5
    greed: float = 10.0

    def explore(self, scorer: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        # Score training data for the surrogates: random candidates and mutants of the best.
        size = self.considered // 8
        scorer.score_candidates(scorer.space.sample(rng, size), RANDOM)
        best_rows = scorer.draw_start_rows(size, self.greed, rng)
        best = [candidate for scored_rows in best_rows for candidate in _candidates(scored_rows)]
        scorer.score_candidates(scorer.space.mutate_all(rng, best), MUTATION)
        count = min(self.begun, max(2, (self.considered - len(scorer)) // self.steps))
        labels = dict(zip(sample.candidates, sample.label.tolist(), strict=True))
        # Half of the starting rows are drawn by score, the others uniformly.
        starts: dict[str, list[Rows]] = {}
        for start_count, greed in ((count // 2, self.greed), (count - count // 2, 0.0)):
            for scored_rows in scorer.draw_start_rows(start_count, greed, rng):
                starts.setdefault(scored_rows.sketch.key, []).append(scored_rows.rows)
        for sketch_rows in scorer.scored_rows_by_sketch():
            if rows := starts.get(sketch_rows.sketch.key):
                path_rows = self._climb(np.concatenate(rows), sketch_rows, labels, rng)
                scorer.score_rows([(sketch_rows.sketch, path_rows)], ASCENT)

    def _climb(
        self, starts: Rows, scored_rows: ScoredRows, labels: dict[Candidate, float], rng: np.random.Generator
    ) -> Rows:
        genes = genes_of(scored_rows.sketch)
        pairs = zip(_candidates(scored_rows), scored_rows.promise, strict=True)
        scores = np.array([labels.get(candidate, score) for candidate, score in pairs])
        surrogate = Surrogate(genes, genes.encode(scored_rows.rows), scores, rng) if self.learning else None
        points, path_rows = genes.encode(starts), []
        for length in np.geomspace(self.longest, self.shortest, self.steps):
            direction = surrogate.slope(points) if surrogate else rng.normal(size=points.shape)
            # Project the direction first, so that the projection does not shorten the step.
            feasible = genes.project(points + PROBE * _unit(direction)) - points
            points = genes.project(points + length * _unit(feasible))
            path_rows.append(genes.decode(points))
        return np.concatenate(path_rows)


def _unit(directions: Points) -> Points:
    return np.asarray(directions / np.maximum(TINY, np.linalg.norm(directions, axis=1, keepdims=True)))


def _candidates(scored_rows: ScoredRows) -> Iterator[Candidate]:
    return (Candidate(scored_rows.sketch.key, tuple(row)) for row in scored_rows.rows.tolist())
