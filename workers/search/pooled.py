"""Searchers that gather a pool of scored candidates and let a BatchSampler choose from it."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.base import CostModel, Prediction
from costmodels.views import DECISIONS
from workers.search.base import Proposal, Trial
from workers.search.batch import BatchSearcher
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
    def pool(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> dict[Candidate, str]:
        """Candidates to score with their origins; measured ones may be among them."""

    def choose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        sieve: Filter,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        origins = self.pool(space, history, model, count, rng)
        scored = score(space, model, sieve.fresh(origins))
        chosen = self._sampled(prudent(space, history, scored, rng), sieve, count, rng)
        return _proposals(chosen, scored, origins)

    def _sampled(
        self,
        pool: ScoredPool,
        sieve: Filter,
        count: int,
        rng: np.random.Generator,
    ) -> list[Candidate]:
        sampler = self.sampler or TopK()
        chosen: list[Candidate] = []
        while len(chosen) < count and len(pool):
            lines = sampler.choose(pool, count - len(chosen), rng)
            chosen += sieve.valid([pool.candidates[at] for at in lines])
            pool = pool.without(lines)
        return chosen


def _proposals(
    chosen: Sequence[Candidate], scored: ScoredPool, origins: dict[Candidate, str]
) -> list[Proposal]:
    """Proposals with the model's own prediction, before penalties."""
    expected = dict(zip(scored.candidates, scored.prediction.mean.tolist(), strict=True))
    return [Proposal(candidate, expected[candidate], origins[candidate]) for candidate in chosen]


def score(space: Space, model: CostModel | None, candidates: Sequence[Candidate]) -> ScoredPool:
    """The model's prediction for each; without a model all are equal."""
    features = space.features(candidates)
    if model is None:
        alike = np.zeros(len(candidates), dtype=np.float32)
        return ScoredPool(candidates, features, Prediction(alike, alike))
    seen = features if model.view == DECISIONS.name else space.viewed(model.view, candidates)
    return ScoredPool(candidates, features, model.predict(seen))
