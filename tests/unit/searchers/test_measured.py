"""What is remembered of a history is bounded, and compared with the best of all."""

import numpy as np
import pytest

from mallorn.core.outcomes import Outcome
from mallorn.searchers.base import Trial
from mallorn.searchers.pooled_searcher import fastest, latest
from mallorn.searchers.synthetic_space import SyntheticSpace

CANDIDATES = SyntheticSpace(64, 64, 64).sample(np.random.default_rng(0), 6)
HISTORY = [
    Trial(CANDIDATES[0], Outcome.OK, 20.0),
    Trial(CANDIDATES[1], Outcome.OK, 10.0),
    Trial(CANDIDATES[2], Outcome.WRONG_RESULT, 1.0),
    Trial(CANDIDATES[3], Outcome.BUILD_ERROR, None),
    Trial(CANDIDATES[4], Outcome.OK, 40.0),
    Trial(CANDIDATES[5], Outcome.OK, 80.0),
]


def test_the_fastest_come_first_and_failures_never() -> None:
    found = fastest(HISTORY, 3)
    assert found.candidates == [CANDIDATES[1], CANDIDATES[0], CANDIDATES[4]]
    np.testing.assert_allclose(found.slowdown, np.log([1.0, 2.0, 4.0]))


def test_the_latest_are_compared_with_the_best_of_all() -> None:
    found = latest(HISTORY, 3)
    assert found.candidates == [CANDIDATES[4], CANDIDATES[5]]
    np.testing.assert_allclose(found.slowdown, np.log([4.0, 8.0]))


def test_where_it_is_cold_the_best_is_drawn() -> None:
    assert set(fastest(HISTORY, 4).draw(np.random.default_rng(0), 50, 0.01)) == {CANDIDATES[1]}


def test_where_it_is_hot_all_are_drawn() -> None:
    drawn = fastest(HISTORY, 4).draw(np.random.default_rng(0), 400, 100.0)
    assert min(drawn.count(CANDIDATES[at]) for at in (0, 1, 4, 5)) > 70


@pytest.mark.parametrize("history", [[], HISTORY[2:4]])
def test_a_history_without_timings_is_empty(history: list[Trial]) -> None:
    for found in (fastest(history, 5), latest(history, 5)):
        assert len(found) == 0
        assert found.draw(np.random.default_rng(0), 3, 1.0) == []
