"""Simulated annealing as in AutoTVM and FlexTensor: many chains on the cost model."""

from dataclasses import dataclass

import numpy as np

from searchers.base import RANDOM
from searchers.batch_searcher import Request
from searchers.bounded_trial_history import fastest, latest
from searchers.pooled_searcher import PooledSearcher, score
from searchers.space import Candidate

ANNEALING = "annealing"


@dataclass(eq=False, kw_only=True)
class Annealing(PooledSearcher):
    """Parallel chains that take one change at a time: uphill always, downhill by chance while hot.

    A chain restarts at a measured candidate, fast ones more often, or at one of the last. Starts and starting
    temperature follow from the history. Without a model the chains take a step or two.
    """

    chains: int = 128
    steps: int = 32
    remembered: int = 128
    hottest: float = 0.5
    coldest: float = 0.05
    halving_trials: int = 64
    optimism: float = 0.5

    def pool(self, asked: Request) -> dict[Candidate, str]:
        temperature = self.temperature(len(asked.history))
        if asked.model is None:
            # One step from half of the starts, two from the others.
            space, rng = asked.space, asked.rng
            starts = fastest(asked.history, self.remembered).draw(rng, 2 * asked.count, temperature)
            once = space.mutate_all(rng, starts)
            twice = [*once[::2], *space.mutate_all(rng, once[1::2])]
            strangers = dict.fromkeys(space.sample(rng, asked.count), RANDOM)
            return dict.fromkeys((twice[at] for at in rng.permutation(len(twice))), ANNEALING) | strangers
        at = self._starts(asked, temperature)
        space, model, rng = asked.space, asked.model, asked.rng
        seen = dict.fromkeys(at, ANNEALING)
        promise = score(space, model, at).promise(self.optimism)
        for step in range(self.steps):
            heat = temperature * (1 - step / self.steps)
            ahead = space.mutate_all(rng, at)
            seen.update(dict.fromkeys(ahead, ANNEALING))
            expected = score(space, model, ahead).promise(self.optimism)
            goes = rng.random(len(at)) < np.exp(np.minimum(0.0, (expected - promise) / heat))
            promise = np.where(goes, expected, promise)
            at = [new if go else old for old, new, go in zip(at, ahead, goes, strict=True)]
        return seen

    def temperature(self, trials: int) -> float:
        """The temperature at the start of a round, in log latency."""
        return max(self.coldest, float(self.hottest * 0.5 ** (trials / self.halving_trials)))

    def _starts(self, asked: Request, temperature: float) -> list[Candidate]:
        """Half from fast candidates, a quarter from the last, the rest from defaults and random ones."""
        fast = fastest(asked.history, self.remembered).draw(asked.rng, self.chains // 2, temperature)
        last = latest(asked.history, self.remembered).draw(asked.rng, self.chains // 4, temperature)
        known = [*fast, *last, *asked.space.defaults()][: self.chains]
        return known + asked.space.sample(asked.rng, self.chains - len(known))
