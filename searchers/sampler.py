"""The interface of samplers, which choose the candidates to measure from a scored pool."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mallorn.costmodels.base import Indices, Prediction, Vector
from mallorn.searchers.space import Candidate, Matrix, Space


@dataclass(frozen=True, slots=True)
class ScoredPool:
    """Distinct unmeasured candidates, with their features and predictions."""

    candidates: Sequence[Candidate]
    features: Matrix
    prediction: Prediction

    def __len__(self) -> int:
        return len(self.candidates)

    def optimistic_scores(self, optimism: float) -> Vector:
        """Return predicted scores plus `optimism` times their standard deviations."""
        return self.prediction.mean + np.float32(optimism) * self.prediction.std

    def select_lines(self, lines: Indices) -> "ScoredPool":
        """Return a pool of the candidates at these indices, in this order."""
        prediction = Prediction(self.prediction.mean[lines], self.prediction.std[lines])
        candidates = [self.candidates[index] for index in lines.tolist()]
        return ScoredPool(candidates, self.features[lines], prediction)

    def joined_with(self, second: "ScoredPool") -> "ScoredPool":
        """Return a pool with the candidates of both pools, this pool's first."""
        prediction = map(np.concatenate, zip(self.prediction, second.prediction, strict=True))
        features = np.concatenate([self.features, second.features])
        return ScoredPool([*self.candidates, *second.candidates], features, Prediction(*prediction))

    def without(self, lines: Indices) -> "ScoredPool":
        return self.select_lines(np.setdiff1d(np.arange(len(self)), lines))


class Sampler(ABC):
    """Chooses candidates from a scored pool.

    Contract
    - It returns distinct line numbers of the pool, best first: `count`, or all if it has fewer.
    - The choice is a pure function of the arguments.
    """

    @abstractmethod
    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> Indices:
        """Return the indices in `pool` of the candidates to measure next."""


class Synthesiser(Sampler):
    """A Sampler that also gets measured candidates, and may create candidates itself.

    Contract, in addition to that of Sampler
    - `compose` returns distinct, unmeasured candidates: of the pool, or well-formed ones of
      the space. If these are invalid, `choose` adds others. If there is no space, only
      `choose` is called.
    """

    @abstractmethod
    def compose(
        self, space: Space, pool: ScoredPool, measured_pool: ScoredPool, count: int, rng: np.random.Generator
    ) -> list[Candidate]:
        """Return up to `count` candidates, best first; `measured_pool` has the fastest so far."""
