"""Whatever a searcher wants, what it gets is recorded, new and distinct."""

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.lab.replay_search import (
    LooseSpace,
    RecordedArena,
    RecordedProposals,
    RecordedSpace,
    ShownSpace,
    WideSpace,
    play,
    propose_recorded,
)
from benchmarks.lab.synthetic_arena import SyntheticArena
from benchmarks.search_replay import even_trials
from mallorn.core.registry import list_names, resolve
from mallorn.searchers.base import Proposal, Searcher, Trial
from mallorn.searchers.pooled_searcher import Request
from mallorn.searchers.space import Candidate, Space
from mallorn.searchers.synthetic_space import SyntheticSpace
from research.tests.unit.replay.made_up import made_up

TASK = made_up(60)
SPACE = RecordedSpace(TASK)


class Stubborn(Searcher):
    """Proposes the same unrecorded candidates whatever happened."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = list(candidates)

    def propose(self, space, history, model, count, rng):  # type: ignore[no-untyped-def]
        return [Proposal(candidate, -1.0, "stubborn") for candidate in self.candidates[:count]]


def strangers() -> list[Candidate]:
    drawn = SyntheticSpace(64, 64, 64).sample(np.random.default_rng(7), 60)
    return [candidate for candidate in drawn if candidate not in SPACE.candidates]


def test_recorded_proposals_stay_and_others_go_to_the_nearest_that_is_free() -> None:
    far = Proposal(strangers()[0], -0.2, "mine")
    (nearest,) = SPACE.nearest([far.candidate])
    others = (candidate for candidate in SPACE.candidates if candidate != nearest)
    exact = Proposal(next(others), -0.5, "mine")
    first, second = RecordedProposals(SPACE, []).move_to_free_candidates([far, exact])
    assert first == Proposal(nearest, None, "mine")  # the model's word was about another candidate
    assert second == exact


def test_who_wants_a_recorded_candidate_gets_it_even_if_another_came_near_it_first() -> None:
    far = Proposal(strangers()[0], None, "mine")
    (nearest,) = SPACE.nearest([far.candidate])
    landed = RecordedProposals(SPACE, []).move_to_free_candidates([far, Proposal(nearest, -0.5, "mine")])
    assert landed[1] == Proposal(nearest, -0.5, "mine")
    assert landed[0].candidate != nearest


def test_two_that_want_one_place_get_two_neighbours() -> None:
    far = Proposal(strangers()[0], None, "mine")
    landed = [
        each.candidate for each in RecordedProposals(SPACE, []).move_to_free_candidates([far, far, far])
    ]
    assert len(set(landed)) == 3
    assert all(SPACE.valid(landed))


def test_a_searcher_that_never_learns_still_measures_everything_once() -> None:
    arena = RecordedArena(TASK, ShownSpace.WIDE)
    run = play(arena, Stubborn(strangers()), None, trials=1000, round_size=16, seed=0)
    measured = [trial.candidate for trial in run.trials]
    assert sorted(c.key for c in measured) == sorted(c.key for c in SPACE.candidates)
    assert run.curve[-1] == 1.0


@pytest.mark.parametrize("view", list(ShownSpace))
@pytest.mark.parametrize("search", list_names("search"))
def test_no_searcher_measures_what_was_not_recorded_or_twice(search: str, view: ShownSpace) -> None:
    arena = RecordedArena(TASK, view)
    searcher = resolve("search", search)(resolve("sampler", "topk")())
    run = play(arena, searcher, resolve("cost_model", "random"), trials=40, round_size=20, seed=1)
    measured = [trial.candidate for trial in run.trials]
    assert len(measured) == len(set(measured)) == 40
    assert set(measured) <= set(SPACE.candidates)


@pytest.mark.parametrize("shown", [LooseSpace(TASK), WideSpace(SPACE)])
def test_an_exhausted_recording_gives_what_is_left(shown: Space) -> None:
    history = [SPACE.measure(candidate) for candidate in SPACE.candidates[:-2]]
    searcher = resolve("search", "evolutionary")()
    found = propose_recorded(searcher, Request(shown, history, None, 16, np.random.default_rng(0)), SPACE)
    assert {each.candidate for each in found} == set(SPACE.candidates[-2:])
    everything = [*history, *(SPACE.measure(each.candidate) for each in found)]
    asked = Request(shown, everything, None, 16, np.random.default_rng(0))
    assert propose_recorded(searcher, asked, SPACE) == []


def test_a_run_is_a_pure_function_of_its_seed() -> None:
    def trials(seed: int) -> tuple[Trial, ...]:
        arena = RecordedArena(made_up(60), ShownSpace.WIDE)
        model = resolve("cost_model", "random")
        return play(arena, resolve("search", "sa")(), model, trials=32, round_size=16, seed=seed).trials

    assert trials(3) == trials(3)
    assert trials(3) != trials(4)


def test_a_curve_never_rises_and_counts_failures_as_no_success() -> None:
    run = play(
        SyntheticArena(64, 64, 64), resolve("search", "random")(), None, trials=48, round_size=16, seed=0
    )
    assert len(run.curve) == 48
    assert all(later <= earlier for earlier, later in zip(run.curve, run.curve[1:], strict=False))
    assert run.curve[-1] >= 1.0


def test_even_draws_need_so_many_trials_on_average_as_a_lottery_says() -> None:
    arena = RecordedArena(TASK, ShownSpace.RECORDED)
    times = [t.latency_us if t.latency_us is not None else np.inf for t in TASK.trials]
    rng = np.random.default_rng(0)
    orders = [rng.permutation(times) for _ in range(4000)]
    waited = [1 + int((order <= 1.5 * arena.optimum_us).argmax()) for order in orders]
    assert even_trials(arena, 1.5) == pytest.approx(np.mean(waited), rel=0.1)
