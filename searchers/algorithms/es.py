"""An evolution strategy as in Tuna: a distribution over decisions that moves towards the winners."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from costmodels.views import VIEWS
from searchers.algorithms.es_state import EsState, by_rank
from searchers.base import RANDOM, Trial
from searchers.batch_searcher import Request
from searchers.bounded_trial_history import fastest
from searchers.pooled_searcher import PooledSearcher, score
from searchers.space import Candidate, Space

STRATEGY = "strategy"


@dataclass(eq=False, kw_only=True)
class EvolutionStrategy(PooledSearcher):
    """Fits its distribution to the fastest of the history, then lets it climb the cost model.

    Every round starts from the whole space, so nothing is kept between rounds. Without a model, candidates
    are drawn from the distribution fitted to the fastest. With `learning` off the distribution stays as
    wide as the space. A model that reads generated code is asked about fewer, in batches: they are compiled.
    """

    compiles: ClassVar[bool] = True

    offspring: int = 512
    generations: int = 8
    compiled: int = 192  # candidates of a round, for models of lowered views
    parent_share: float = 1 / 8
    remembered: int = 24
    trusted: int = 4
    rate: float = 0.4
    optimism: float = 0.5
    learning: bool = True

    def pool(self, asked: Request) -> dict[Candidate, str]:
        space, rng = asked.space, asked.rng
        strategy = self._fitted(space, asked.history, rng)
        if asked.model is None:
            drawn = strategy.draw(rng, 2 * asked.count)
            pool = dict.fromkeys((drawn[at] for at in rng.permutation(len(drawn))), STRATEGY)
            return pool | dict.fromkeys(space.sample(rng, asked.count), RANDOM)
        pool = dict.fromkeys(space.defaults(), STRATEGY)
        lowered = VIEWS[asked.model.view].lowered
        offspring = self.compiled // self.generations if lowered else self.offspring
        parents = max(2, round(self.parent_share * offspring))
        for _ in range(self.generations):
            drawn = list(dict.fromkeys(strategy.draw(rng, offspring)))
            pool.update(dict.fromkeys(drawn, STRATEGY))
            promise = score(space, asked.model, drawn).promise(self.optimism)
            winners = [drawn[at] for at in np.argsort(-promise, kind="stable")[:parents]]
            if self.learning:
                strategy = strategy.toward(winners, by_rank(len(winners)), self.rate)
        return pool

    def _fitted(self, space: Space, history: Sequence[Trial], rng: np.random.Generator) -> EsState:
        """The space's distribution, moved towards the fastest measured; more of them move it further."""
        strategy = EsState.over(space, rng)
        known = fastest(history, max(1, min(self.remembered, len(history) // 2)))
        if not known or not self.learning:
            return strategy
        rate = len(known) / (len(known) + self.trusted)
        return strategy.toward(known.candidates, by_rank(len(known)), rate)
