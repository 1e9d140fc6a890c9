"""A portfolio: several searchers share every round by the credit of their candidates."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

import numpy as np

from mallorn.core.registry import resolve
from mallorn.costmodels.base import CostModel, Indices
from mallorn.searchers.algorithms.arm_credit import compute_arm_credit
from mallorn.searchers.base import Proposal, Searcher, Trial, prefix_origin, searcher_of
from mallorn.searchers.fill_round import Filter, as_pending_trials, propose_defaults, random_fill
from mallorn.searchers.pooled_searcher import PooledSearcher
from mallorn.searchers.sampler import Sampler
from mallorn.searchers.space import Space

ARMS: Final = ("evolutionary", "ga", "sa", "roller", "random")
NAME: Final = "portfolio"
LEAST_OF_POOL: Final = 16  # candidates of a round that are worth scoring a further pool


@dataclass(eq=False)
class Portfolio(Searcher):
    """A bandit over searchers. It keeps no state: trials in the history name their searcher.

    A trial's credit is its rank among neighbouring trials, plus a bonus for a new best;
    older trials count less. Searchers share a round by a softmax of the upper bounds of
    their credit, with a minimum, so that one that is only useful later is still tried.
    """

    sampler: Sampler | None = None
    _: KW_ONLY
    arms: Sequence[str] = ARMS
    exploration: float = 0.15
    temperature: float = 0.15
    floor: float = 0.05

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
        sizes = self.divide_round(history, count - len(chosen), rng)
        for arm in np.argsort(-sizes, kind="stable"):
            if sizes[arm]:
                searcher: Searcher = resolve("search", self.arms[arm])(self.sampler)
                trials = [*history, *as_pending_trials(chosen)]
                proposals = searcher.propose(space, trials, model, int(sizes[arm]), rng)
                chosen += [prefix_origin(proposal, self.arms[arm]) for proposal in proposals]
        candidate_filter.exclude(proposal.candidate for proposal in chosen)
        chosen += random_fill(space, candidate_filter, count - len(chosen), rng)
        return [prefix_origin(proposal, NAME) for proposal in chosen]

    def divide_round(self, history: Sequence[Trial], count: int, rng: np.random.Generator) -> Indices:
        """Return each searcher's number of candidates: its share, randomly rounded. Searchers
        that score a pool of thousands take turns, because few candidates cost as much as many."""
        credits = compute_arm_credit(history, self.arms, searcher_of)
        exact_sizes = count * credits.shares(self.exploration, self.temperature, self.floor)
        sizes = np.floor(exact_sizes).astype(np.int64)
        remainders = exact_sizes - sizes
        if shortfall := count - int(sizes.sum()):
            sizes += rng.multinomial(shortfall, remainders / remainders.sum())
        pooled = [n for n, arm in enumerate(self.arms) if issubclass(resolve("search", arm), PooledSearcher)]
        if total := int(sizes[pooled].sum()):
            turns = max(1, total // LEAST_OF_POOL)
            drawn = rng.multinomial(turns, sizes[pooled] / total)
            sizes[pooled] = drawn * (total // turns)
            sizes[pooled[int(drawn.argmax())]] += total % turns
        return sizes
