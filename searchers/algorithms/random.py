"""Random search: the baseline that every searcher must beat, and an unbiased source of data."""

from dataclasses import dataclass

from mallorn.searchers.base import Proposal
from mallorn.searchers.batch_searcher import BatchSearcher, Request
from mallorn.searchers.fill_batch import Filter


@dataclass(eq=False)
class RandomSearch(BatchSearcher):
    """Proposes the defaults, then random candidates; ignores measurements and model."""

    random_share: float = 0.0  # the base class fills the batch with random candidates anyway

    def choose(self, request: Request, candidate_filter: Filter) -> list[Proposal]:
        return []
