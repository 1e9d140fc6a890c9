"""Random search: the baseline that every searcher must beat, and an unbiased source of data."""

from dataclasses import dataclass

from mallorn.searchers.base import Proposal
from mallorn.searchers.fill_round import Filter
from mallorn.searchers.pooled_searcher import FillingSearcher, Request


@dataclass(eq=False)
class RandomSearch(FillingSearcher):
    """Proposes the defaults, then random candidates; ignores measurements and model."""

    random_share: float = 0.0  # the base class fills the round with random candidates anyway

    def choose(self, request: Request, candidate_filter: Filter) -> list[Proposal]:
        return []
