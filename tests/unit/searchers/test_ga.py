"""Mates of the genetic algorithm are of one kind, and no kind dies out."""

from collections import Counter

import numpy as np
import pytest

from mallorn.costmodels.base import CostModel, Prediction
from mallorn.costmodels.random import RandomModel
from mallorn.searchers.algorithms.genetic_algorithm import Genetic, birth_shares, elite, islands, tournament
from mallorn.searchers.base import CROSSOVER, MUTATION, Trial
from mallorn.searchers.fill_round import Filter
from mallorn.searchers.pooled_searcher import Request
from mallorn.searchers.space import Matrix
from mallorn.searchers.synthetic_space import RFACTOR, SyntheticSpace, fit_on_history


class Loathing(RandomModel):
    """A model that expects nothing of the second sketch."""

    def predict(self, features: Matrix) -> Prediction:
        second = features[:, 33] > 0  # the one-hot of the sketch's ordinal
        return Prediction(np.where(second, -9.0, 0.0).astype(np.float32), np.zeros(len(second), np.float32))


def pool_of(model: CostModel | None, history: list[Trial], space: SyntheticSpace) -> Counter[str]:
    pool = Genetic().pool(Request(space, history, model, 16, np.random.default_rng(0)))
    return Counter(candidate.sketch for candidate in pool)


def test_a_sketch_that_the_model_loathes_still_breeds() -> None:
    space = SyntheticSpace(64, 64, 64)
    sketches = pool_of(fit_on_history(space, [], Loathing, seed=0), [], space)
    founders = Genetic().population // 2
    assert founders + 200 < sketches[RFACTOR] < 0.4 * sketches.total()


def test_without_a_model_the_measured_have_children_by_both_operators() -> None:
    space = SyntheticSpace(64, 64, 64)
    history = [space.measure(c) for c in space.sample(np.random.default_rng(0), 40)]
    pool = Genetic().pool(Request(space, history, None, 64, np.random.default_rng(0)))
    origins = Counter(pool[candidate] for candidate in Filter(space, history).fresh(pool))
    assert origins[CROSSOVER] > 5
    assert origins[MUTATION] > 40


def test_islands_are_the_lines_of_each_sketch() -> None:
    drawn = SyntheticSpace(64, 64, 64).sample(np.random.default_rng(0), 30)
    found = islands(drawn)
    assert sorted(np.concatenate(found).tolist()) == list(range(30))
    assert all(len({drawn[at].sketch for at in lines}) == 1 for lines in found)


def test_the_better_island_breeds_more_and_the_worst_a_little() -> None:
    fitness = np.array([0.0, -0.1, -5.0, -50.0], dtype=np.float32)
    better, worse = birth_shares(fitness, [np.array([0, 1]), np.array([2, 3])], champions=2)
    assert better + worse == pytest.approx(1.0)
    assert 0.12 < worse < 0.13 < better


def test_tournaments_are_won_by_the_fitter() -> None:
    fitness = np.arange(10, dtype=np.float32)
    lines = np.array([2, 3, 7])
    won = tournament(np.random.default_rng(0), fitness, lines, 300, contestants=4)
    counts = [int((won == line).sum()) for line in lines]
    assert sum(counts) == 300
    assert counts == sorted(counts)
    assert counts[2] > 200


def test_the_elite_of_an_island_are_its_fittest() -> None:
    fitness = np.array([3.0, 9.0, 5.0, 7.0], dtype=np.float32)
    assert elite(fitness, np.array([0, 2, 3]), 2).tolist() == [3, 2]
