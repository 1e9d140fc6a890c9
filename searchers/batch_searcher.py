"""The common outline of a batch, and the request that subclasses answer."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from costmodels.base import CostModel
from searchers.base import Proposal, Searcher, Trial
from searchers.batch_sampler import BatchSampler
from searchers.fill_batch import Filter, defaults_first, random_fill
from searchers.space import Space


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `Searcher.propose`; to `choose`, `count` is what defaults and random ones leave."""

    space: Space
    history: Sequence[Trial]
    model: CostModel | None
    count: int
    rng: np.random.Generator


@dataclass(eq=False)
class BatchSearcher(Searcher):
    """Defaults first, then the subclass's choice, then random candidates, which also fill up the batch."""

    sampler: BatchSampler | None = None
    _: KW_ONLY
    random_share: float = 0.05

    @abstractmethod
    def choose(self, asked: Request, sieve: Filter) -> list[Proposal]:
        """At most `asked.count` candidates (one or more) that the sieve found valid."""

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
            batch += self.choose(Request(space, history, model, wanted, rng), sieve)
        return batch + random_fill(space, sieve, count - len(batch), rng)
