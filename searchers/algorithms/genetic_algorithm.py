"""A genetic algorithm on decision vectors: tournaments, crossover, one island per sketch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mallorn.costmodels.base import Column, Indices, Vector
from mallorn.searchers.base import CROSSOVER, DEFAULT, MEASURED, MUTATION, RANDOM
from mallorn.searchers.decision_features import places_by_sketch
from mallorn.searchers.pooled_searcher import PooledSearcher, Request, fastest, score
from mallorn.searchers.space import Candidate, Space

LEAST_SHARE = 0.25  # least share of births of an island, relative to equal shares


def islands(candidates: Sequence[Candidate]) -> list[Indices]:
    """Return the indices of the candidates of each sketch (an island of the population)."""
    names = [candidate.sketch for candidate in candidates]
    return [np.array(lines, dtype=np.int64) for lines in places_by_sketch(names).values()]


def birth_shares(fitness: Vector, members: Sequence[Indices], champions: int) -> Column:
    """Return islands' shares of births: a softmax of their best members' mean fitness, with
    a minimum. The best members are `champions` many."""
    means = [float(np.sort(fitness[lines])[-champions:].mean()) for lines in members]
    heat = np.exp(np.array(means) - max(means))
    return np.asarray(LEAST_SHARE / len(members) + (1 - LEAST_SHARE) * heat / heat.sum())


def tournament(
    rng: np.random.Generator, fitness: Vector, members: Indices, winners: int, contestants: int
) -> Indices:
    """Return winners of tournaments among random members of an island (indices `lines`)."""
    contestants_drawn = members[rng.integers(len(members), size=(winners, contestants))]
    best = fitness[contestants_drawn].argmax(axis=1)
    return np.asarray(contestants_drawn[np.arange(winners), best])


def elite(fitness: Vector, members: Indices, count: int) -> Indices:
    """Return the indices of the best `count` members of an island (`lines`), best first."""
    return np.asarray(members[np.argsort(-fitness[members], kind="stable")[:count]])


@dataclass(eq=False, kw_only=True)
class Genetic(PooledSearcher):
    """Evolves one island (population) per sketch, with the cost model's score as fitness.
    Without a model, the measured candidates, by latency, have one generation of children."""

    population: int = 768
    generations: int = 5
    remembered: int = 128
    champions: int = 16
    contestants: int = 4
    crossover: float = 0.6
    mutation: float = 0.4

    def pool(self, request: Request) -> dict[Candidate, str]:
        space, rng = request.space, request.rng
        elite_trials = fastest(request.history, self.remembered)
        if request.model is None:
            contestants_drawn = dict.fromkeys(space.sample(rng, request.count), RANDOM)
            if not elite_trials:
                return contestants_drawn
            fitness = -elite_trials.slowdown.astype(np.float32)
            bred = self._breed(space, elite_trials.candidates, fitness, 2 * request.count, rng)
            return bred | contestants_drawn
        founders = dict.fromkeys(elite_trials.candidates, MEASURED) | dict.fromkeys(space.defaults(), DEFAULT)
        strangers = space.sample(rng, max(1, self.population - len(founders)))
        pool = dict.fromkeys(strangers, RANDOM) | founders
        alive = list(pool)
        for _ in range(self.generations):
            fitness = score(space, request.model, alive).optimistic_scores(self.optimism)
            champions = [
                alive[index] for lines in islands(alive) for index in elite(fitness, lines, self.champions)
            ]
            children = self._breed(space, alive, fitness, max(1, self.population - len(champions)), rng)
            alive = list(dict.fromkeys([*champions, *children]))
            pool = children | pool
        return pool

    def _breed(
        self, space: Space, alive: list[Candidate], fitness: Vector, count: int, rng: np.random.Generator
    ) -> dict[Candidate, str]:
        # Both parents are winners of tournaments on the same island.
        members = islands(alive)
        sizes = rng.multinomial(count, birth_shares(fitness, members, self.champions))
        couples = [
            tournament(rng, fitness, lines, 2 * size, self.contestants).reshape(2, size)
            for lines, size in zip(members, sizes, strict=True)
        ]
        mothers, fathers = rng.permutation(np.hstack(couples), axis=1)
        is_crossed = rng.random(count) < self.crossover
        partners = np.where(is_crossed, fathers, mothers)
        offspring = space.cross_all(rng, [alive[i] for i in mothers], [alive[i] for i in partners])
        changed = np.flatnonzero(~is_crossed | (rng.random(count) < self.mutation))
        children = dict.fromkeys(offspring, CROSSOVER)
        mutants = space.mutate_all(rng, [offspring[i] for i in changed])
        for i, mutant in zip(changed, mutants, strict=True):
            offspring[i] = mutant
        children = dict.fromkeys(mutants, MUTATION) | children
        return {child: children[child] for child in offspring}
