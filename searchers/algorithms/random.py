"""Random search: the floor that every searcher must beat, and a fair way to fill a dataset."""

from collections.abc import Sequence

import numpy as np

from costmodels.base import CostModel
from searchers.base import Proposal, Searcher, Trial
from searchers.batch_sampler import BatchSampler
from searchers.fill_batch import Filter, defaults_first, random_fill
from searchers.space import Space


class RandomSearch(Searcher):
    """Random candidates after the defaults; ignores measurements and model."""

    def __init__(self, sampler: BatchSampler | None = None) -> None:
        del sampler  # all searchers get one; this one has no pool

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        del model
        sieve = Filter(space, history)
        first = defaults_first(space, history, sieve, count)
        return first + random_fill(space, sieve, count - len(first), rng)
