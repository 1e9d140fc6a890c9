"""What a host ended may be proposed again; what was tried may not."""

import numpy as np
import pytest

from mallorn.core.outcomes import Outcome
from mallorn.searchers.base import DEFAULT, Trial
from mallorn.searchers.fill_round import MOST_LOST, Filter, propose_defaults
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import SyntheticSpace

SPACE = SyntheticSpace(64, 64, 64)
GUESSES = SPACE.defaults()


def ended(candidate: Candidate, outcome: Outcome) -> Trial:
    return Trial(candidate, outcome, 1.0 if outcome is Outcome.OK else None)


def lost(times: int = 1) -> list[Trial]:
    return [ended(GUESSES[0], Outcome.WORKER_LOST)] * times


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.BUILD_TIMEOUT, Outcome.RUN_ERROR])
def test_what_was_tried_is_not_tried_again(outcome: Outcome) -> None:
    assert Filter(SPACE, [ended(GUESSES[0], outcome), *lost()]).fresh(GUESSES[:1]) == []


def test_what_a_host_ended_may_be_tried_again_until_it_was_lost_too_often() -> None:
    assert Filter(SPACE, lost(MOST_LOST - 1)).fresh(GUESSES[:1]) == GUESSES[:1]
    assert Filter(SPACE, lost(MOST_LOST)).fresh(GUESSES[:1]) == []


def test_what_was_withdrawn_may_be_tried_at_any_time() -> None:
    withdrawn = [ended(GUESSES[0], Outcome.WITHDRAWN)] * MOST_LOST
    assert Filter(SPACE, withdrawn).fresh(GUESSES[:1]) == GUESSES[:1]
    assert Filter(SPACE, [*withdrawn, ended(GUESSES[0], Outcome.OK)]).fresh(GUESSES[:1]) == []


def test_first_guesses_that_were_withdrawn_are_guessed_again() -> None:
    (other,) = SPACE.sample(np.random.default_rng(3), 1)
    withdrawn = Trial(GUESSES[0], Outcome.WITHDRAWN, origin=f"random:{DEFAULT}")
    for history, again in (
        ([ended(other, Outcome.WITHDRAWN)], GUESSES),  # as if nothing had been tried
        ([withdrawn, ended(other, Outcome.OK)], GUESSES[:1]),
        ([withdrawn, ended(GUESSES[0], Outcome.RUN_ERROR)], []),
    ):
        found = propose_defaults(SPACE, history, Filter(SPACE, history), 16)
        assert [proposal.candidate for proposal in found] == again


def test_a_first_guess_that_was_lost_is_guessed_again_and_no_other() -> None:
    (other,) = SPACE.sample(np.random.default_rng(3), 1)
    history = [ended(other, Outcome.OK), *lost()]
    again = propose_defaults(SPACE, history, Filter(SPACE, history), 16)
    assert [proposal.candidate for proposal in again] == GUESSES[:1]
    whole = [ended(other, Outcome.OK)]
    assert propose_defaults(SPACE, whole, Filter(SPACE, whole), 16) == []
