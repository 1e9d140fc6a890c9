"""Random search: the floor that every searcher must beat, and a fair way to fill a dataset."""

from dataclasses import dataclass

from searchers.base import Proposal
from searchers.batch_searcher import BatchSearcher, Request
from searchers.fill_batch import Filter


@dataclass(eq=False)
class RandomSearch(BatchSearcher):
    """Random candidates after the defaults; ignores measurements and model."""

    random_share: float = 0.0  # what `choose` leaves is random

    def choose(self, asked: Request, sieve: Filter) -> list[Proposal]:
        return []
