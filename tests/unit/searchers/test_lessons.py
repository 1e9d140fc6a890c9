"""What a policy learned survives as bytes, within bounds; bytes that are none are no parameters."""

import numpy as np
import pytest

from mallorn.costmodels.serialization import pack
from mallorn.searchers.algorithms.ppo import Ppo
from mallorn.searchers.algorithms.random import RandomSearch
from mallorn.searchers.learning.dense_network import has_shapes
from mallorn.searchers.learning.stateful_learner import LearnedParameters
from mallorn.searchers.stateful_searcher import MOST_BYTES, Continued, keep_state_between_calls
from mallorn.searchers.synthetic_space import SyntheticSpace


def test_lessons_come_back_as_they_were_kept() -> None:
    stored_parameters = LearnedParameters("a")
    stored_parameters.store("s", {"weight": np.arange(6.0).reshape(2, 3), "bias": np.empty(0)})
    stored_parameters.store("t", {"weight": np.ones(1)})
    again = LearnedParameters.read("a", stored_parameters.packed())
    (kept, other) = again.of("s"), again.of("t")
    assert kept is not None
    assert other is not None
    assert has_shapes(kept, {"weight": (2, 3), "bias": (0,)})
    np.testing.assert_array_equal(kept["weight"], [[0, 1, 2], [3, 4, 5]])
    assert again.of("nobody") is None


@pytest.mark.parametrize(
    "state",
    [
        None,
        b"",
        b"PK nothing",
        pack("another", {"sketches": []}, {}),
        pack("a", {}, {}),
        pack("a", {"sketches": 7}, {}),
        pack("a", {"sketches": [{}, None]}, {}),
    ],
)
def test_bytes_of_another_kind_are_no_lesson(state: bytes | None) -> None:
    assert LearnedParameters.read("a", state).packed() is None


def test_what_does_not_fit_is_left_out_and_the_rest_is_kept() -> None:
    stored_parameters, noise = LearnedParameters("a"), np.random.default_rng(0)
    for at in range(8):
        stored_parameters.store(str(at), {"weight": noise.normal(size=MOST_BYTES // 4 // 5)})
    state = stored_parameters.packed()
    assert state is not None
    assert len(state) <= MOST_BYTES
    again = LearnedParameters.read("a", state)
    assert [again.of(str(at)) is not None for at in range(8)] == [True] * 4 + [False] * 4


def test_a_searcher_for_all_rounds_of_a_task_goes_on_from_round_to_round() -> None:
    space, learner = SyntheticSpace(64, 64, 64), Ppo(considered=512, walkers=32)
    known = [space.measure(each) for each in dict.fromkeys(space.sample(np.random.default_rng(0), 40))]
    assert keep_state_between_calls(plain := RandomSearch()) is plain
    held = keep_state_between_calls(learner)
    assert isinstance(held, Continued)
    first = held.propose(space, known, None, 8, np.random.default_rng(1))
    second = held.propose(space, known, None, 8, np.random.default_rng(1))
    proposals, state = learner.propose_from(None, space, known, None, 8, np.random.default_rng(1))
    assert first == proposals
    assert second == learner.propose_from(state, space, known, None, 8, np.random.default_rng(1))[0]
    assert second != first


@pytest.mark.parametrize(
    "learner",
    [Ppo(considered=512, walkers=32, learning=False), Ppo(considered=512, walkers=32, keeping=False)],
)
def test_a_learner_whose_switch_is_off_keeps_nothing(learner: Ppo) -> None:
    space, rng = SyntheticSpace(64, 64, 64), np.random.default_rng
    known = [space.measure(each) for each in space.defaults()]
    taught = Ppo(considered=512, walkers=32).propose_from(None, space, known, None, 8, rng(1))[1]
    proposals, state = learner.propose_from(taught, space, known, None, 8, rng(1))
    assert state is None
    assert proposals == learner.propose(space, known, None, 8, rng(1))
