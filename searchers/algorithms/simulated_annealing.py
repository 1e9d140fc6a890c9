"""Simulated annealing on the cost model with many chains, as in AutoTVM and FlexTensor."""

from dataclasses import dataclass

import numpy as np

from mallorn.searchers.base import RANDOM
from mallorn.searchers.pooled_searcher import PooledSearcher, Request, fastest, latest, score
from mallorn.searchers.space import Candidate

ANNEALING = "annealing"


@dataclass(eq=False, kw_only=True)
class Annealing(PooledSearcher):
    """Parallel chains of mutations, which accept lower scores with a falling probability.

    Chains start at measured candidates (mostly fast or recent ones), defaults and random
    candidates. Starts and starting temperature depend on the history. Without a model,
    chains make one or two unconditional steps.
    """

    chains: int = 128
    steps: int = 32
    remembered: int = 128
    hottest: float = 0.5
    coldest: float = 0.05
    halving_trials: int = 64

    def pool(self, request: Request) -> dict[Candidate, str]:
        temperature = self.temperature(len(request.history))
        space, model, rng = request.space, request.model, request.rng
        if model is None:
            # One step from half of the starts, two from the others.
            starts = fastest(request.history, self.remembered).draw(rng, 2 * request.count, temperature)
            first_mutants = space.mutate_all(rng, starts)
            twice = [*first_mutants[::2], *space.mutate_all(rng, first_mutants[1::2])]
            strangers = dict.fromkeys(space.sample(rng, request.count), RANDOM)
            return dict.fromkeys((twice[line] for line in rng.permutation(len(twice))), ANNEALING) | strangers
        # Half of the starts are fast candidates, a quarter recent, then defaults and random ones.
        fast = fastest(request.history, self.remembered).draw(rng, self.chains // 2, temperature)
        recent = latest(request.history, self.remembered).draw(rng, self.chains // 4, temperature)
        positions = [*fast, *recent, *space.defaults()][: self.chains]
        positions += space.sample(rng, self.chains - len(positions))
        visited = dict.fromkeys(positions, ANNEALING)
        promise = score(space, model, positions).optimistic_scores(self.optimism)
        for step in range(self.steps):
            heat = temperature * (1 - step / self.steps)
            mutants = space.mutate_all(rng, positions)
            visited.update(dict.fromkeys(mutants, ANNEALING))
            mutant_promise = score(space, model, mutants).optimistic_scores(self.optimism)
            accepts = rng.random(len(positions)) < np.exp(np.minimum(0.0, (mutant_promise - promise) / heat))
            promise = np.where(accepts, mutant_promise, promise)
            positions = [new if go else old for old, new, go in zip(positions, mutants, accepts, strict=True)]
        return visited

    def temperature(self, trials: int) -> float:
        """Return the temperature of a round after `trials` trials, in log latency."""
        return max(self.coldest, float(self.hottest * 0.5 ** (trials / self.halving_trials)))
