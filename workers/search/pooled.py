"""Searchers that gather a pool of scored candidates and let a BatchSampler choose from it."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.base import CostModel, Prediction
from costmodels.views import DECISIONS
from workers.search.base import Proposal
from workers.search.batch import BatchSearcher, Request
from workers.search.fill import Filter
from workers.search.prudence import prudent
from workers.search.sampler import ScoredPool
from workers.search.space import Candidate, Space
from workers.search.topk import TopK


@dataclass(eq=False)
class PooledSearcher(BatchSearcher):
    """A BatchSearcher that gathers a pool and lets its sampler choose from it.

    Subclasses fill the pool; only chosen candidates are checked for validity. Candidates like earlier
    failures are chosen less often.
    """

    @abstractmethod
    def pool(self, asked: Request) -> dict[Candidate, str]:
        """Candidates to score with their origins; measured ones may be among them."""

    def choose(self, asked: Request, sieve: Filter) -> list[Proposal]:
        origins = self.pool(asked)
        scored = score(asked.space, asked.model, sieve.fresh(origins))
        chosen = self._sampled(prudent(asked.space, asked.history, scored, asked.rng), asked, sieve)
        # With the model's own predictions, before penalties.
        expected = dict(zip(scored.candidates, scored.prediction.mean.tolist(), strict=True))
        return [Proposal(candidate, expected[candidate], origins[candidate]) for candidate in chosen]

    def _sampled(self, pool: ScoredPool, asked: Request, sieve: Filter) -> list[Candidate]:
        sampler = self.sampler or TopK()
        chosen: list[Candidate] = []
        while len(chosen) < asked.count and len(pool):
            lines = sampler.choose(pool, asked.count - len(chosen), asked.rng)
            chosen += sieve.valid([pool.candidates[at] for at in lines])
            pool = pool.without(lines)
        return chosen


def score(space: Space, model: CostModel | None, candidates: Sequence[Candidate]) -> ScoredPool:
    """The model's prediction for each; without a model all are equal."""
    features = space.features(candidates)
    if model is None:
        alike = np.zeros(len(candidates), dtype=np.float32)
        return ScoredPool(candidates, features, Prediction(alike, alike))
    seen = features if model.view == DECISIONS.name else space.viewed(model.view, candidates)
    return ScoredPool(candidates, features, model.predict(seen))
