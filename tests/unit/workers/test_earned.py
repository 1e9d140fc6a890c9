"""What trials earned, out of contests in which first guesses were timed beside the winners."""

from types import SimpleNamespace
from typing import Any

from mallorn.core.values.candidate import Candidate
from workers.finish.earned import earned

GUESS, FOUND = Candidate("s", (1,)), Candidate("s", (2,))


def winner(us: float, guess_us: float | None, weight: int = 1, candidate: Candidate = FOUND) -> Any:
    slots = [SimpleNamespace(candidate=candidate)]
    means = {FOUND: "mutation", GUESS: "default"}
    contest = SimpleNamespace(task=SimpleNamespace(weight=weight), slots=slots, guess=GUESS, means=means)
    return SimpleNamespace(contest=contest, slot=0, latency_us=us, guess_us=guess_us)


def test_sums_are_weighted_and_a_winner_earns_by_the_means_that_found_it() -> None:
    found = earned([winner(80.0, 100.0, weight=3), winner(50.0, 50.0, candidate=GUESS)]).earned
    assert found is not None
    assert (found.guessed_us, found.found_us, found.saved_us) == (350.0, 290.0, {"mutation": 60.0})


def test_tasks_whose_first_guess_was_not_timed_are_left_out() -> None:
    found = earned([winner(80.0, 100.0), winner(7.0, None)]).earned
    assert found is not None
    assert (found.guessed_us, found.found_us) == (100.0, 80.0)
    assert earned([winner(7.0, None)]).earned is None
