"""What ga, sa, es and guided promise alike: bounded work, and better than luck with a model and without."""

from collections.abc import Sequence

import numpy as np
import pytest

from costmodels.random import RandomModel
from costmodels.xgb import XGBoost
from searchers.algorithms.es import EvolutionStrategy
from searchers.algorithms.ga import Genetic
from searchers.algorithms.guided_walk import Guided
from searchers.algorithms.random import RandomSearch
from searchers.algorithms.sa import Annealing
from searchers.base import Searcher, Trial
from searchers.simulate_search import best_us, simulate, trained
from searchers.space import Candidate, Matrix
from searchers.synthetic_space import SyntheticSpace

SEARCHERS = (Genetic, Annealing, EvolutionStrategy, Guided)
SEEDS = range(4)


class CountingSpace(SyntheticSpace):
    """Counts the candidates that are described, which is what a round's time goes to."""

    described = 0

    def features(self, candidates: Sequence[Candidate]) -> Matrix:
        self.described += len(candidates)
        return super().features(candidates)


def described(searcher: Searcher, trials: int) -> int:
    space = CountingSpace()
    drawn = list(dict.fromkeys(space.sample(np.random.default_rng(0), 2 * trials)))
    history = [space.measure(candidate) for candidate in drawn[:trials]]
    model = trained(space, [], RandomModel, seed=0)
    space.described = 0
    searcher.propose(space, history, model, 64, np.random.default_rng(1))
    return space.described


@pytest.mark.parametrize("kind", SEARCHERS)
def test_a_round_is_as_much_work_after_many_trials_as_after_few(kind: type[Searcher]) -> None:
    few, many = described(kind(), 200), described(kind(), 2000)
    assert 2000 < few < 10_000
    assert many < 1.1 * few


@pytest.fixture(scope="module")
def space() -> SyntheticSpace:
    return SyntheticSpace(256, 512, 64)


@pytest.fixture(scope="module")
def luck(space: SyntheticSpace) -> float:
    return excess([simulate(space, RandomSearch(), None, trials=96, batch=16, seed=s) for s in SEEDS], space)


def excess(runs: list[list[Trial]], space: SyntheticSpace) -> float:
    """By how much the best found is above the optimum, as a logarithm, on average."""
    return float(np.mean([np.log(best_us(run) / space.optimum_us) for run in runs]))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("make_model", [XGBoost, None])
@pytest.mark.parametrize("kind", SEARCHERS)
def test_at_equal_trials_it_beats_random_search(
    kind: type[Searcher], make_model: type[XGBoost] | None, space: SyntheticSpace, luck: float
) -> None:
    runs = [simulate(space, kind(), make_model, trials=96, batch=16, seed=seed) for seed in SEEDS]
    assert excess(runs, space) < 0.6 * luck
