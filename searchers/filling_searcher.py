"""Base class of searchers whose batches consist of defaults, chosen and random candidates."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from mallorn.costmodels.base import CostModel
from mallorn.searchers.base import Proposal, Searcher, Trial
from mallorn.searchers.fill_round import Filter, propose_defaults, random_fill
from mallorn.searchers.sampler import Sampler
from mallorn.searchers.space import Space


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `Searcher.propose`, except that `count` excludes the default and
    random candidates, which FillingSearcher adds itself."""

    space: Space
    history: Sequence[Trial]
    model: CostModel | None
    count: int
    rng: np.random.Generator


@dataclass(eq=False)
class FillingSearcher(Searcher):
    """Proposes the space's defaults, then the subclass's choice, then random candidates."""

    sampler: Sampler | None = None
    _: KW_ONLY
    random_share: float = 0.05

    @abstractmethod
    def choose(self, request: Request, candidate_filter: Filter) -> list[Proposal]:
        """Return at most `request.count` (>= 1) proposals that `candidate_filter` passed."""

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        candidate_filter = Filter(space, history)
        chosen = propose_defaults(space, history, candidate_filter, count)
        left = count - len(chosen)
        if to_choose := left - int(rng.binomial(left, self.random_share)):
            chosen += self.choose(Request(space, history, model, to_choose, rng), candidate_filter)
        return chosen + random_fill(space, candidate_filter, count - len(chosen), rng)
