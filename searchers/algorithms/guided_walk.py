"""A guided walk around the best measured candidates, in directions that paid before."""

from dataclasses import dataclass

import numpy as np

from costmodels.base import Column, CostModel, Indices
from searchers.algorithms.step_gains import Directions
from searchers.base import WALK
from searchers.batch_searcher import Request
from searchers.bounded_trial_history import TimedCandidates, fastest
from searchers.pooled_searcher import PooledSearcher, score
from searchers.roller.rank_candidates import losses
from searchers.space import Candidate, Space


@dataclass(eq=False, kw_only=True)
class Guided(PooledSearcher):
    """Walkers start at the best measured candidates and move to the most promising of a few neighbours.

    A step's promise comes from measured steps and from the constructor's model of time. With a cost model,
    that decides and these two count little.
    """

    walkers: int = 32
    neighbours: int = 8
    steps: int = 14
    blind_steps: int = 2
    remembered: int = 128
    hint: float = 0.25
    noise: float = 0.05
    optimism: float = 0.5

    def pool(self, asked: Request) -> dict[Candidate, str]:
        """All candidates that the walkers saw, the most promising first."""
        space, model, rng = asked.space, asked.model, asked.rng
        known = fastest(asked.history, self.remembered)
        directions = Directions(space, known)
        at, worth = self._starts(space, known, rng)
        seen: dict[Candidate, float] = {}
        for _ in range(self.steps if model else self.blind_steps):
            origin = [each for each in at for _ in range(self.neighbours)]
            ahead = space.mutate_all(rng, origin)
            prior = losses(space, [*origin, *ahead])
            hints = directions.expected(origin, ahead) + prior[: len(origin)] - prior[len(origin) :]
            value = self._value(space, model, ahead, np.repeat(worth, self.neighbours), hints)
            seen.update(zip(ahead, value.tolist(), strict=True))
            chosen = self._ahead(value, rng)
            at, worth = [ahead[line] for line in chosen], value[chosen]
        best_first = sorted(seen, key=lambda candidate: -seen[candidate])
        return dict.fromkeys(best_first if model else best_first[: 2 * asked.count], WALK)

    def _value(
        self, space: Space, model: CostModel | None, ahead: list[Candidate], worth: Column, hints: Column
    ) -> Column:
        """The expected log speed of each neighbour, relative to the best measured."""
        if model is None:
            return worth + hints
        return score(space, model, ahead).promise(self.optimism) + self.hint * hints

    def _ahead(self, value: Column, rng: np.random.Generator) -> Indices:
        """For each walker the best of its neighbours, with a little noise, so that equals spread."""
        noisy = value + self.noise * rng.gumbel(size=len(value))
        best = noisy.reshape(-1, self.neighbours).argmax(axis=1)
        return np.asarray(np.arange(len(best)) * self.neighbours + best)

    def _starts(
        self, space: Space, known: TimedCandidates, rng: np.random.Generator
    ) -> tuple[list[Candidate], Column]:
        """The best measured candidates; defaults and random candidates if too few were measured."""
        best = known.candidates[: self.walkers * 3 // 4]
        others = [*space.defaults(), *space.sample(rng, self.walkers)][: self.walkers - len(best)]
        afar = -losses(space, others) - float(known.slowdown.mean() if known else 0.0)
        return [*best, *others], np.concatenate([-known.slowdown[: len(best)], afar])
