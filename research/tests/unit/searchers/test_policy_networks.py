"""Small networks learn what they are shown: functions, values of directions, and what is rewarded."""

import numpy as np
import pytest

from mallorn.searchers.learning.exploring_learner import ScoredRows
from mallorn.searchers.space import Choice, ChoiceKind, Sketch
from mallorn_research.searchers.decision_moves import (
    DenseNetwork,
    measured_steps,
    moves_of,
    multiply_in_blocks,
)
from mallorn_research.searchers.ppo import DOWN, KEEP, UP, Actor, Experience, advantages
from mallorn_research.searchers.qlearning import QValues

SKETCH = Sketch("s", "", (Choice(ChoiceKind.CATEGORICAL, 1, values=tuple(range(8))),))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(1, 3, 2), (500, 70, 64), (3, 700, 700), (0, 4, 2)])
def test_a_product_in_blocks_is_the_product(shape: tuple[int, int, int], rng: np.random.Generator) -> None:
    left, right = rng.normal(size=shape[:2]), rng.normal(size=shape[1:])
    np.testing.assert_allclose(multiply_in_blocks(left, right), left @ right, atol=1e-9)


def test_a_network_fits_a_function_that_is_not_linear(rng: np.random.Generator) -> None:
    rows = rng.normal(size=(256, 4))
    rows[:, 3] = 7.0  # a constant column
    wanted = np.abs(rows[:, :1]) - rows[:, 1:2] * rows[:, 2:3]
    network = DenseNetwork(rows, (32, 32), 1, 1e-2, rng)
    for _ in range(400):
        network.learn(rows, lambda out: (out - wanted) / len(rows))
    assert np.mean((network(rows) - wanted) ** 2) < 0.05 * wanted.var()


def test_the_slope_goes_through_every_layer_as_finite_differences_say(rng: np.random.Generator) -> None:
    rows = rng.normal(size=(5, 3))
    network = DenseNetwork(rows, (6,), 2, 0.0, rng)
    seen = []
    network._adam.step = lambda gradients: seen.append(gradients)  # type: ignore[method-assign, assignment]
    network.learn(rows, lambda out: np.ones_like(out))
    before = network(rows).sum()
    network._weights[0][1, 2] += 1e-6
    assert (network(rows).sum() - before) / 1e-6 == pytest.approx(seen[0][0][1, 2], rel=1e-3)


def scored_rows(place: int, count: int = 1) -> ScoredRows:
    rows = np.full((count, 1), place, dtype=np.int32)
    return ScoredRows(SKETCH, rows, np.eye(8, dtype=np.float32)[rows[:, 0]], rows[:, 0].astype(np.float64))


def test_values_learn_to_walk_towards_what_pays(rng: np.random.Generator) -> None:
    moves = moves_of(SKETCH)
    known = np.eye(8, dtype=np.float32)
    nothing = measured_steps(moves, np.empty((0, 1), np.int32), known[:0], np.empty(0))
    values = QValues(moves, known, nothing, 1e-2, rng)
    for _ in range(20):
        for place in range(8):
            here = scored_rows(place, 4)
            way = values.choose_directions(here, 1.0, rng)
            rows = moves.apply(here.rows, way)
            values.remember(here, way, ScoredRows(SKETCH, rows, known[rows[:, 0]], rows[:, 0].astype(float)))
        values.learn(20, 0.7, rng)
    ups = [
        moves.apply(scored_rows(at).rows, values.choose_directions(scored_rows(at), 0.0, rng))[0, 0]
        for at in range(7)
    ]
    assert ups == [1, 2, 3, 4, 5, 6, 7]


def test_measured_neighbours_are_steps_with_the_measured_gain() -> None:
    moves = moves_of(SKETCH)
    rows = np.array([[2], [3], [6]], dtype=np.int32)
    steps = measured_steps(moves, rows, np.eye(8, dtype=np.float32)[rows[:, 0]], np.array([0.0, -0.5, -4.0]))
    assert len(steps.way) == 2
    assert sorted(steps.reward) == pytest.approx([np.tanh(-0.5), np.tanh(0.5)])
    np.testing.assert_array_equal(moves.apply(rows[[0, 1]], steps.way), rows[[1, 0]])


def test_advantages_are_discounted_surprises() -> None:
    rewards, values = np.array([[1.0], [2.0]]), np.array([[0.5], [1.0], [4.0]])
    last = 2.0 + 0.5 * 4.0 - 1.0
    first = 1.0 + 0.5 * 1.0 - 0.5 + 0.5 * 0.8 * last
    np.testing.assert_allclose(advantages(rewards, values, 0.5, 0.8)[:, 0], [first, last])


def experience(actor: Actor, state: np.ndarray, rng: np.random.Generator) -> Experience:
    action, chance = actor.choose_actions(state, rng)
    worth = (action[:, 0] == UP).astype(float) + (action[:, 1] == DOWN)
    return Experience(state, action, chance, worth - worth.mean(), worth)


def test_a_policy_takes_to_what_is_rewarded_and_its_critic_to_what_comes(rng: np.random.Generator) -> None:
    state = rng.normal(size=(128, 5)).astype(np.float32)
    actor = Actor(state, 2, 1e-2, rng)
    for _ in range(40):
        actor.learn(experience(actor, state, rng), 3, 0.2, 0.0, rng)
    action, _ = actor.choose_actions(state, rng)
    assert np.mean(action[:, 0] == UP) > 0.9
    assert np.mean(action[:, 1] == DOWN) > 0.9
    assert actor.value(state).mean() > 1.0


def test_the_clip_bounds_how_far_one_experience_leads(rng: np.random.Generator) -> None:
    state = rng.normal(size=(128, 5)).astype(np.float32)
    before = np.random.default_rng(3)
    far, near = (Actor(state, 2, 1e-2, np.random.default_rng(1)) for _ in range(2))
    steps = experience(far, state, before)
    far.learn(steps, 60, 1e9, 0.0, rng)
    near.learn(steps, 60, 0.05, 0.0, rng)
    assert _share_up(near, state) < 0.8 * _share_up(far, state)


def _share_up(actor: Actor, state: np.ndarray) -> float:
    return float(np.mean(actor.choose_actions(state, np.random.default_rng(0))[0][:, 0] == UP))


def test_an_untaught_policy_keeps_most_knobs_as_they_are(rng: np.random.Generator) -> None:
    state = rng.normal(size=(200, 5)).astype(np.float32)
    action, chance = Actor(state, 20, 1e-2, rng).choose_actions(state, rng)
    assert 1.0 < (action != KEEP).sum(axis=1).mean() < 3.5
    assert (chance <= 0).all()
