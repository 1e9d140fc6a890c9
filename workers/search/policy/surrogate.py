"""A score with a gradient: a small network over the log factors of one sketch."""

from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from costmodels.adam import AdamW
from costmodels.layers import Tensor, forward, gradients, initial, slopes
from workers.search.genes import Genes, Points
from workers.search.policy.scout import Promise

HIDDEN: Final = (48, 48)
STEPS: Final = 300
BATCH: Final = 96
RATE: Final = 6e-3


class Surrogate:
    """Learns scores of points (`workers.search.genes`); says in which direction they rise."""

    def __init__(self, genes: Genes, points: Points, scores: Promise, rng: np.random.Generator) -> None:
        logs = genes.logs()
        spread = (points @ logs).std(axis=0)
        used = np.flatnonzero(spread > 0)
        self._to_inputs = (logs[:, used] / spread[used]).astype(np.float32)
        self._middle = (points @ self._to_inputs).mean(axis=0)
        self._layers = initial(rng, 1, (len(used), *HIDDEN, 1))
        self._layers[-1] += np.float32(scores.mean())
        with threadpool_limits(1, user_api="blas"):
            self._learn(points, scores, rng)

    def _learn(self, points: Points, scores: Promise, rng: np.random.Generator) -> None:
        """Fast candidates weigh more: it is they that are climbed from."""
        rows = self._rows(points)[0]
        weight = (np.exp(np.minimum(0.0, scores - scores.max())) + 0.1).astype(np.float32)
        adam = AdamW(self._layers, RATE, STEPS)
        for _ in range(STEPS):
            batch = rng.integers(len(rows), size=BATCH)
            values = forward(self._layers, rows[batch][None])
            error = values[-1][:, :, 0] - scores[batch].astype(np.float32)
            adam.step(gradients(self._layers, values, error * weight[batch] / BATCH))

    def __call__(self, points: Points) -> Promise:
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
