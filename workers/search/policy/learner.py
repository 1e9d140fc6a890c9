"""The base of the learning searchers: they explore through a scout, always with some model."""

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from costmodels.base import CostModel
from workers.search.base import DEFAULT, MEASURED, RANDOM, Proposal
from workers.search.batch import Request
from workers.search.fill import Filter
from workers.search.policy.history_sample import HistorySample, sample_of
from workers.search.policy.kernel_regression import KernelRegression
from workers.search.policy.scout import Scout
from workers.search.pooled import PooledSearcher
from workers.search.space import Candidate, Space


@dataclass(eq=False, kw_only=True)
class Learner(PooledSearcher):
    """A PooledSearcher that learns from what it looks at; its pool is all that it saw meanwhile.

    Without a model, kernel regression over the task's measurements prices candidates; without measurements
    the pool is random.
    """

    considered: int = 4096
    optimism: float = 0.5

    @abstractmethod
    def explore(self, scout: Scout, sample: HistorySample, rng: np.random.Generator) -> None:
        """Look at about `considered` candidates, increasingly good ones."""

    def choose(self, asked: Request, sieve: Filter) -> list[Proposal]:
        if asked.model is None:
            asked = replace(asked, model=stand_in(asked.space, sample_of(asked.history)))
        return super().choose(asked, sieve)

    def pool(self, asked: Request) -> dict[Candidate, str]:
        space, rng = asked.space, asked.rng
        if asked.model is None:
            return dict.fromkeys(space.sample(rng, asked.count), RANDOM)
        sample = sample_of(asked.history)
        scout = Scout(space, asked.model, optimism=self.optimism)
        scout.look_at(sample.candidates, MEASURED)
        scout.look_at(space.defaults(), DEFAULT)
        scout.look_at(space.sample(rng, self.considered // 8), RANDOM)
        self.explore(scout, sample, rng)
        return scout.pool()


def stand_in(space: Space, sample: HistorySample) -> CostModel | None:
    """A model of the sample alone; None if it is empty."""
    if not sample.candidates:
        return None
    model = KernelRegression()
    groups = np.zeros(len(sample.candidates), dtype=np.int64)
    model.fit(space.features(sample.candidates), sample.label, groups, seed=0)
    return model
