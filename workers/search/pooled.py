"""Searchers that gather a pool of scored candidates and let a BatchSampler choose from it."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from costmodels.base import CostModel, Prediction
from workers.search.base import Proposal, Searcher, Trial
from workers.search.fill import Filter, random_fill, take
from workers.search.origins import DEFAULT
from workers.search.prudence import prudent
from workers.search.sampler import BatchSampler, ScoredPool
from workers.search.space import Candidate, Space
from workers.search.topk import TopK


class PooledSearcher(Searcher):
    """Defaults first, then the sampler's choice of the pool, then a random share, which also fills up.

    A subclass says how candidates come into the pool; only those chosen from it are checked for validity.
    Those that the failures so far speak against are chosen less often.
    """

    def __init__(self, sampler: BatchSampler | None = None, *, random_share: float = 0.05) -> None:
        self.sampler = sampler or TopK()
        self.random_share = random_share

    @abstractmethod
    def pool(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> dict[Candidate, str]:
        """Candidates worth scoring and whose idea each was; measured ones may be among them."""

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        sieve = Filter(space, history)
        batch = [] if history else take(sieve, space.defaults(), count, DEFAULT)
        drawn_at_random = int(rng.binomial(count - len(batch), self.random_share))
        wanted = count - len(batch) - drawn_at_random
        if wanted:
            origins = self.pool(space, history, model, wanted, rng)
            scored = score(space, model, sieve.fresh(origins))
            chosen = self._choose(prudent(space, history, scored, rng), sieve, wanted, rng)
            batch += _proposals(chosen, scored, origins)
        return batch + random_fill(space, sieve, count - len(batch), rng)

    def _choose(
        self,
        pool: ScoredPool,
        sieve: Filter,
        count: int,
        rng: np.random.Generator,
    ) -> list[Candidate]:
        chosen: list[Candidate] = []
        while len(chosen) < count and len(pool):
            lines = self.sampler.choose(pool, count - len(chosen), rng)
            chosen += sieve.valid([pool.candidates[at] for at in lines])
            pool = pool.without(lines)
        return chosen


def _proposals(
    chosen: Sequence[Candidate], scored: ScoredPool, origins: dict[Candidate, str]
) -> list[Proposal]:
    """With what the model itself expects of each, whatever prudence made of it."""
    expected = dict(zip(scored.candidates, scored.prediction.mean.tolist(), strict=True))
    return [Proposal(candidate, expected[candidate], origins[candidate]) for candidate in chosen]


def score(space: Space, model: CostModel | None, candidates: Sequence[Candidate]) -> ScoredPool:
    """What the model expects of each; without a model all are alike."""
    features = space.features(candidates)
    if model is None:
        alike = np.zeros(len(candidates), dtype=np.float32)
        return ScoredPool(candidates, features, Prediction(alike, alike))
    return ScoredPool(candidates, features, model.predict(features))
