"""A round of ga and sa is bounded work, however long the history is."""

from collections.abc import Sequence

import numpy as np
import pytest

from mallorn.costmodels.random import RandomModel
from mallorn.searchers.algorithms.genetic_algorithm import Genetic
from mallorn.searchers.algorithms.simulated_annealing import Annealing
from mallorn.searchers.base import Searcher
from mallorn.searchers.space import Candidate, Matrix
from mallorn.searchers.synthetic_space import SyntheticSpace, fit_on_history


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
    model = fit_on_history(space, [], RandomModel, seed=0)
    space.described = 0
    searcher.propose(space, history, model, 64, np.random.default_rng(1))
    return space.described


def check_bounded_work(kind: type[Searcher]) -> None:
    """Assert that a round looks at a bounded number of candidates, after few trials and after many."""
    few, many = described(kind(), 200), described(kind(), 2000)
    assert 2000 < few < 10_000
    assert many < 1.1 * few


@pytest.mark.parametrize("kind", [Genetic, Annealing])
def test_a_round_is_as_much_work_after_many_trials_as_after_few(kind: type[Searcher]) -> None:
    check_bounded_work(kind)
