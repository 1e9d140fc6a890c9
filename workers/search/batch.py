"""The outline of a batch, whoever chooses it."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from costmodels.base import CostModel
from workers.search.base import Proposal, Searcher, Trial
from workers.search.fill import Filter, defaults_first, random_fill
from workers.search.sampler import BatchSampler
from workers.search.space import Space


@dataclass(eq=False)
class BatchSearcher(Searcher):
    """Defaults first, then what the subclass chooses, then a random share, which also fills up."""

    sampler: BatchSampler | None = None
    _: KW_ONLY
    random_share: float = 0.05

    @abstractmethod
    def choose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        sieve: Filter,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        """At most `count` (one or more) that the sieve found valid; fewer for lack of ideas."""

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        sieve = Filter(space, history)
        batch = defaults_first(space, history, sieve, count)
        left = count - len(batch)
        if wanted := left - int(rng.binomial(left, self.random_share)):
            batch += self.choose(space, history, model, sieve, wanted, rng)
        return batch + random_fill(space, sieve, count - len(batch), rng)
