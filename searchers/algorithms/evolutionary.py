"""Evolutionary search as in Ansor and MetaSchedule, on decision vectors, without lowering."""

from dataclasses import dataclass

import numpy as np

from mallorn.searchers.base import CROSSOVER, DEFAULT, MEASURED, MUTATION, RANDOM
from mallorn.searchers.pooled_searcher import PooledSearcher, Request, fastest, score
from mallorn.searchers.space import Candidate


@dataclass(eq=False, kw_only=True)
class Evolutionary(PooledSearcher):
    """Evolves the best measured and random candidates; fitness is the cost model's score.
    Without a model, it mutates the best measured ones, and half of the pool is random."""

    population: int = 1024
    generations: int = 4
    elite: int = 64
    crossover: float = 0.15

    def pool(self, request: Request) -> dict[Candidate, str]:
        space, rng = request.space, request.rng
        elite = fastest(request.history, self.elite).candidates
        if request.model is None:
            pool = dict.fromkeys(space.sample(rng, request.count), RANDOM)
            if elite:
                parents = [elite[index] for index in rng.integers(len(elite), size=request.count)]
                pool.update(dict.fromkeys(space.mutate_all(rng, parents), MUTATION))
            shuffled = rng.permutation(len(pool))
            items = list(pool.items())
            return dict(items[index] for index in shuffled)
        founders = dict.fromkeys(space.defaults(), DEFAULT) | dict.fromkeys(elite, MEASURED)
        strangers = space.sample(rng, max(1, self.population - len(founders)))
        pool = founders | {c: RANDOM for c in strangers if c not in founders}
        parents = list(pool)
        for _ in range(self.generations):
            promise = score(space, request.model, parents).optimistic_scores(self.optimism)
            # Parents are drawn by the rank of their score, which does not depend on its scale.
            best_first = np.argsort(-promise, kind="stable")
            ranks = np.argsort(best_first)
            weights = np.exp(-10.0 * ranks / len(promise))
            couples = round(self.population * self.crossover)
            drawn_count = self.population + couples
            parent_lines = rng.choice(len(parents), size=drawn_count, p=weights / weights.sum())
            mates = [parents[index] for index in parent_lines]
            crossed = space.cross_all(rng, mates[:couples], mates[self.population :])
            mutated = space.mutate_all(rng, mates[couples : self.population])
            children = dict.fromkeys(crossed, CROSSOVER) | dict.fromkeys(mutated, MUTATION)
            for child, origin in children.items():
                pool.setdefault(child, origin)
            parents = [parents[index] for index in best_first[: self.population // 2]] + list(children)
        return pool
