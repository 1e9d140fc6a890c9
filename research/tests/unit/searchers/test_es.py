"""The distribution of the evolution strategy follows the winners."""

import numpy as np
import pytest

from mallorn.searchers.synthetic_space import RFACTOR, TILED, SyntheticSpace
from mallorn_research.searchers.evolution_strategy import EsState, SketchGaussian, rank_weights


def test_it_begins_as_wide_as_the_space() -> None:
    space = SyntheticSpace(256, 256, 256)
    strategy = EsState.initial(space, np.random.default_rng(0))
    drawn = strategy.draw(np.random.default_rng(1), 1000)
    assert all(space.well_formed(drawn))
    assert len(set(drawn)) > 900
    assert {c.sketch for c in drawn} == {TILED, RFACTOR}
    assert len({c.decisions[0] for c in drawn}) >= 6


def test_it_follows_the_winners_in_sketch_and_decisions() -> None:
    space = SyntheticSpace(256, 256, 256)
    strategy = EsState.initial(space, np.random.default_rng(0))
    winner = next(c for c in space.sample(np.random.default_rng(5), 50) if c.sketch == RFACTOR)
    for _ in range(30):
        strategy = strategy.toward([winner] * 20, rank_weights(20), rate=0.5)
    drawn = strategy.draw(np.random.default_rng(1), 500)
    assert np.mean([c.sketch == RFACTOR for c in drawn]) > 0.9
    assert drawn.count(winner) > 25
    assert np.mean([c.decisions[10] == winner.decisions[10] for c in drawn if c.sketch == RFACTOR]) > 0.9


def test_a_sketch_without_winners_keeps_its_distribution_and_a_share() -> None:
    space = SyntheticSpace(64, 64, 64)
    before = EsState.initial(space, np.random.default_rng(0))
    winners = [c for c in space.sample(np.random.default_rng(5), 20) if c.sketch == TILED]
    after = before.toward(winners, rank_weights(len(winners)), rate=1.0)
    np.testing.assert_array_equal(after.gaussians[1].mean, before.gaussians[1].mean)
    sketches = [c.sketch for c in after.draw(np.random.default_rng(0), 1000)]
    assert 20 < sketches.count(RFACTOR) < 80


def test_a_single_winner_moves_a_distribution_less_than_many() -> None:
    space = SyntheticSpace(64, 64, 64)
    before = EsState.initial(space, np.random.default_rng(0))
    winner = space.defaults()[0]
    moves = [
        np.abs(
            before.toward([winner] * count, rank_weights(count), 0.5).gaussians[0].mean
            - before.gaussians[0].mean
        )
        for count in (1, 16)
    ]
    assert moves[0].max() < 0.5 * moves[1].max()


def test_the_distribution_grows_in_the_direction_it_moves() -> None:
    still = SketchGaussian(np.zeros(2), np.eye(2))
    moved = still.toward(np.array([[3.0, 0.0], [3.0, 0.0]]), np.array([0.5, 0.5]), rate=0.5)
    np.testing.assert_allclose(moved.mean, [1.5, 0.0])
    assert moved.covariance[0, 0] > 1 > moved.covariance[1, 1]


def test_the_weights_of_winners_fall_with_rank_and_add_up_to_one() -> None:
    weights = rank_weights(10)
    assert weights.sum() == pytest.approx(1.0)
    assert weights.tolist() == sorted(weights, reverse=True)
    assert weights[-1] > 0
    assert rank_weights(1).tolist() == [1.0]
