"""The conformance kit of searchers that keep what they learned."""

import pytest

from mallorn.costmodels.base import CostModel
from mallorn.searchers.base import Searcher, Trial
from mallorn.searchers.stateful_searcher import MOST_BYTES, StatefulSearcher
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.searchers.testing import SearcherTestCase, TinySpace, assert_well_formed, generator


class RememberingTestCase(SearcherTestCase):
    """As SearcherTestCase, whose checks hold too: give the fixture `searcher`."""

    @pytest.fixture
    def learner(self, searcher: Searcher) -> StatefulSearcher:
        assert isinstance(searcher, StatefulSearcher)
        return searcher

    @pytest.fixture
    def state(
        self, learner: StatefulSearcher, space: SyntheticSpace, history: list[Trial], model: CostModel | None
    ) -> bytes:
        """What two rounds have left."""
        first = learner.propose_from(None, space, history[:20], model, 16, generator(1))[1]
        second = learner.propose_from(first, space, history, model, 16, generator(2))[1]
        assert second is not None
        return second

    def test_what_a_round_proposes_and_leaves_is_a_pure_function_of_the_arguments(
        self,
        learner: StatefulSearcher,
        space: SyntheticSpace,
        history: list[Trial],
        model: CostModel | None,
        state: bytes,
    ) -> None:
        first = learner.propose_from(state, space, history, model, 16, generator(3))
        learner.propose_from(None, space, history[:5], model, 8, generator(4))
        assert learner.propose_from(state, space, history, model, 16, generator(3)) == first

    def test_a_state_is_bounded_and_changes_proposals_unless_it_is_damaged(
        self,
        learner: StatefulSearcher,
        space: SyntheticSpace,
        history: list[Trial],
        model: CostModel | None,
        state: bytes,
    ) -> None:
        assert 0 < len(state) <= MOST_BYTES
        without_state = learner.propose(space, history, model, 16, generator(3))
        middle = len(state) // 2
        flipped = state[: middle - 64] + bytes(b ^ 0xFF for b in state[middle - 64 : middle]) + state[middle:]
        states = {
            "whole": state,
            "none": None,
            "cut": state[:middle],
            "flipped": flipped,
            "text": b"no state",
            "empty": b"",
        }
        ignored = {
            name
            for name, bytes_read in states.items()
            if learner.propose_from(bytes_read, space, history, model, 16, generator(3))[0] == without_state
        }
        assert ignored == states.keys() - {"whole"}

    def test_a_state_of_another_space_is_none_to_it(
        self, learner: StatefulSearcher, model: CostModel | None, state: bytes
    ) -> None:
        tiny, other = TinySpace(), SyntheticSpace(96, 32, 64)
        anew, _ = learner.propose_from(None, tiny, [], model, 4, generator(3))
        assert learner.propose_from(state, tiny, [], model, 4, generator(3))[0] == anew
        known = [other.measure(each) for each in dict.fromkeys(other.sample(generator(0), 20))]
        for proposal in learner.propose_from(state, other, known, model, 16, generator(3))[0]:
            assert_well_formed(other, proposal.candidate)
