"""The BatchSampler seam: which of many scored candidates are worth a measurement."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.base import Indices, Prediction, Vector
from searchers.space import Candidate, Matrix, Space


@dataclass(frozen=True, slots=True)
class ScoredPool:
    """Distinct unmeasured candidates, with their features and predictions."""

    candidates: Sequence[Candidate]
    features: Matrix
    prediction: Prediction

    def __len__(self) -> int:
        return len(self.candidates)

    def promise(self, optimism: float) -> Vector:
        """Expected score plus a share of the spread, so that uncertain candidates are tried."""
        return self.prediction.mean + np.float32(optimism) * self.prediction.std

    def only(self, lines: Indices) -> "ScoredPool":
        """These lines of the pool, in this order."""
        prediction = Prediction(self.prediction.mean[lines], self.prediction.std[lines])
        candidates = [self.candidates[at] for at in lines.tolist()]
        return ScoredPool(candidates, self.features[lines], prediction)

    def beside(self, other: "ScoredPool") -> "ScoredPool":
        """The lines of both, these first."""
        mean, std = (
            np.concatenate([getattr(pool.prediction, name) for pool in (self, other)])
            for name in ("mean", "std")
        )
        features = np.concatenate([self.features, other.features])
        return ScoredPool([*self.candidates, *other.candidates], features, Prediction(mean, std))

    def without(self, lines: Indices) -> "ScoredPool":
        """The pool without these lines."""
        return self.only(np.setdiff1d(np.arange(len(self)), lines))


class BatchSampler(ABC):
    """Chooses a batch from a scored pool.

    Contract
    - It returns distinct line numbers of the pool, best first: `count`, or all if there are fewer.
    - The choice is a pure function of the arguments.
    """

    @abstractmethod
    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> Indices:
        """The lines to measure next."""


class Synthesiser(BatchSampler):
    """A BatchSampler that knows what was measured, and may make up candidates that are in no pool.

    Contract, beside that of BatchSampler
    - What `compose` returns is distinct and not measured: of the pool, or well-formed in the space. Whether
      it can be built is found out later; `choose` fills what is missing, and is all that is asked where the
      space is not known.
    """

    @abstractmethod
    def compose(
        self, space: Space, pool: ScoredPool, measured: ScoredPool, count: int, rng: np.random.Generator
    ) -> list[Candidate]:
        """At most `count` candidates to measure next, best first; `measured` holds the fastest so far."""
