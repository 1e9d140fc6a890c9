"""The guided walk knows which way is up."""

import numpy as np
import pytest

from mallorn.core.outcomes import Outcome
from mallorn.searchers.base import Trial
from mallorn.searchers.pooled_searcher import Request, fastest
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import RFACTOR, TILED, SyntheticSpace
from mallorn_research.searchers.guided_walk import Directions, Guided


def wide(lanes: int, *, sketch: str = TILED, rows: int = 8) -> Candidate:
    """A candidate of the 64 x 64 x 64 space with that innermost tile."""
    return Candidate(sketch, (64 // rows, 1, 1, rows, 1, 64 // lanes, 1, lanes, 4, 16, 1, 0))


def by_lanes() -> list[Trial]:
    """A history in which wider was always faster."""
    return [Trial(wide(lanes), Outcome.OK, 1000.0 / lanes) for lanes in (1, 2, 4, 8)]


def test_a_step_on_in_a_direction_that_was_worth_it_is_expected_to_be_worth_it() -> None:
    directions = Directions(SyntheticSpace(64, 64, 64), fastest(by_lanes(), 10))
    up, down, aside = directions.expected_gains(
        [wide(8), wide(8), wide(8)], [wide(16), wide(4), wide(8, rows=4)]
    )
    assert up > 0.3
    assert down == pytest.approx(-up)
    assert aside == pytest.approx(0.0)


def test_nothing_is_expected_of_a_sketch_that_was_never_measured() -> None:
    directions = Directions(SyntheticSpace(64, 64, 64), fastest(by_lanes(), 10))
    assert directions.expected_gains([wide(8, sketch=RFACTOR)], [wide(16, sketch=RFACTOR)]).tolist() == [0.0]
    assert Directions(SyntheticSpace(64, 64, 64), fastest([], 10)).expected_gains([wide(8)], [wide(4)]) == [
        0.0
    ]


def test_without_a_model_it_tries_the_next_step_up_first() -> None:
    space = SyntheticSpace(64, 64, 64)
    pool = list(Guided(noise=0.0).pool(Request(space, by_lanes(), None, 16, np.random.default_rng(0))))
    assert len(pool) <= 32
    assert np.mean([candidate.decisions[7] for candidate in pool[:8]]) > 8
