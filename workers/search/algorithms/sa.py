"""Simulated annealing as in AutoTVM and FlexTensor: many chains on the cost model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.base import CostModel
from workers.search.base import Trial
from workers.search.measured import fastest, latest
from workers.search.origins import RANDOM
from workers.search.pooled import PooledSearcher, score
from workers.search.space import Candidate, Space

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

    def pool(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> dict[Candidate, str]:
        temperature = self.temperature(len(history))
        if model is None:
            return self._steps_for_the_device(space, history, temperature, count, rng)
        return self._walk(space, self._starts(space, history, temperature, rng), model, temperature, rng)

    def temperature(self, trials: int) -> float:
        """The temperature at the start of a round, in log latency."""
        return max(self.coldest, float(self.hottest * 0.5 ** (trials / self.halving_trials)))

    def _starts(
        self, space: Space, history: Sequence[Trial], temperature: float, rng: np.random.Generator
    ) -> list[Candidate]:
        """Half from fast candidates, a quarter from the last, the rest from defaults and random ones."""
        fast = fastest(history, self.remembered).draw(rng, self.chains // 2, temperature)
        last = latest(history, self.remembered).draw(rng, self.chains // 4, temperature)
        known = [*fast, *last, *space.defaults()][: self.chains]
        return known + space.sample(rng, self.chains - len(known))

    def _walk(
        self,
        space: Space,
        at: list[Candidate],
        model: CostModel,
        temperature: float,
        rng: np.random.Generator,
    ) -> dict[Candidate, str]:
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

    def _steps_for_the_device(
        self,
        space: Space,
        history: Sequence[Trial],
        temperature: float,
        count: int,
        rng: np.random.Generator,
    ) -> dict[Candidate, str]:
        """One step from half of the starts, two from the others."""
        starts = fastest(history, self.remembered).draw(rng, 2 * count, temperature)
        once = space.mutate_all(rng, starts)
        twice = [*once[::2], *space.mutate_all(rng, once[1::2])]
        strangers = dict.fromkeys(space.sample(rng, count), RANDOM)
        return dict.fromkeys((twice[at] for at in rng.permutation(len(twice))), ANNEALING) | strangers
