"""A bandit over searchers: credit from the history, shares with a floor, one batch without repeats."""

from collections import Counter

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.core.outcomes import Outcome
from mallorn.searchers.algorithms.arm_credit import RECENT, compute_arm_credit
from mallorn.searchers.algorithms.portfolio import Portfolio
from mallorn.searchers.base import Proposal, Trial, prefix_origin, proposal_method_of, searcher_of
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import SyntheticSpace, simulate
from mallorn.searchers.testing import generator

ARMS = ("evolutionary", "random")


def trials(origin: str, *latencies_us: float | None) -> list[Trial]:
    return [
        Trial(Candidate("s", (at,)), Outcome.OK if us else Outcome.RUN_ERROR, us, origin)
        for at, us in enumerate(latencies_us)
    ]


def alternating(good_us: float, bad_us: float | None, count: int = 32) -> list[Trial]:
    good, bad = (trials(o, *[us] * count) for o, us in (("ga:mutation", good_us), ("sa:walk", bad_us)))
    return [trial for couple in zip(good, bad, strict=True) for trial in couple]


@pytest.mark.parametrize("bad_us", [200.0, None])
def test_who_finds_faster_ones_earns_more(bad_us: float | None) -> None:
    earned = compute_arm_credit(alternating(100.0, bad_us), ("ga", "sa"), searcher_of)
    shares = earned.shares(0.15, 0.15, 0.05)
    assert shares[0] > 0.7
    assert shares[1] >= 0.05
    assert shares.sum() == pytest.approx(1.0)


def test_a_new_best_earns_more_than_a_good_place() -> None:
    steps = trials("ga:mutation", *np.geomspace(200, 50, 16)) + trials("sa:walk", *[51.0] * 16)
    earned = compute_arm_credit(trials("random", *[210.0] * 8) + steps, ("ga", "sa"), searcher_of)
    assert earned.mean[0] > earned.mean[1]


def test_success_fades() -> None:
    then = alternating(100.0, 200.0)
    now = [Trial(t.candidate, t.outcome, 300.0 - (t.latency_us or 0), t.origin) for t in then * 4]
    earned = compute_arm_credit([*then, *now], ("ga", "sa"), searcher_of)
    assert earned.mean[1] > earned.mean[0]


def test_an_arm_without_trials_is_as_good_as_all_together_and_less_known() -> None:
    earned = compute_arm_credit(alternating(100.0, 200.0), ("ga", "sa", "new"), searcher_of)
    assert earned.mean[1] < earned.mean[2] < earned.mean[0]
    assert earned.upper_confidence_bounds(1.0)[2] > earned.upper_confidence_bounds(1.0)[0]


def test_defaults_and_what_never_ran_are_nobodys_merit() -> None:
    lost = [Trial(Candidate("s", (1,)), Outcome.WORKER_LOST, None, "ga:mutation")]
    assert compute_arm_credit([*trials("ga:default", 5.0), *lost], ("ga",), searcher_of).trials.tolist() == [
        0.0
    ]


def test_old_trials_count_for_the_best_alone() -> None:
    old = trials("ga:mutation", 10.0) * 100
    recent = trials("sa:walk", *[20.0] * RECENT)
    earned = compute_arm_credit([*old, *recent], ("ga", "sa"), searcher_of)
    assert earned.trials[0] == 0
    assert earned.mean[1] < 0.1  # no gain on the old best, and no better than its neighbours


def test_origins_say_searcher_and_means() -> None:
    candidate = Candidate("s", (1,))
    assert prefix_origin(Proposal(candidate, None, "walk"), "sa").origin == "sa:walk"
    assert prefix_origin(Proposal(candidate, None, "ga:walk"), "portfolio").origin == "ga:walk"
    assert (searcher_of("ga:walk"), proposal_method_of("ga:walk")) == ("ga", "walk")
    assert (searcher_of("walk"), proposal_method_of("walk")) == ("walk", "walk")


def test_every_arm_keeps_some_candidates_and_the_better_has_most() -> None:
    history = alternating(100.0, 300.0)
    sizes = np.array(
        [Portfolio(arms=("ga", "sa")).divide_round(history, 16, generator(seed)) for seed in range(40)]
    )
    assert (sizes.sum(axis=1) == 16).all()
    assert sizes[:, 0].mean() > 11
    assert sizes[:, 1].mean() >= 0.8


def test_searchers_that_score_pools_take_turns_in_a_usual_round() -> None:
    divided = [Portfolio().divide_round([], 16, generator(seed)) for seed in range(100)]
    pooled = np.array([sizes[:3] for sizes in divided])  # evolutionary, ga, sa
    assert all(sizes.sum() == 16 for sizes in divided)
    assert ((pooled > 0).sum(axis=1) == 1).all()
    assert (pooled.mean(axis=0) > 16 / 5 / 2).all()


def test_a_large_round_is_worth_several_pools() -> None:
    pooled = np.array([Portfolio().divide_round([], 160, generator(seed))[:3] for seed in range(20)])
    assert (pooled.sum(axis=1) == 96).all()
    assert ((pooled > 0).sum(axis=1) > 1).all()


def test_a_batch_names_its_arms() -> None:
    space = SyntheticSpace(64, 64, 64)
    history = simulate(space, Portfolio(arms=ARMS), None, trials=48, round_size=16, seed=0)
    origins = Counter(searcher_of(trial.origin) for trial in history)
    assert set(origins) == {"portfolio", *ARMS}
    assert origins["portfolio"] == len(space.defaults())


def test_an_unknown_arm_is_an_error_not_a_gap() -> None:
    with pytest.raises(InvalidRequest, match="nobody"):
        Portfolio(arms=("nobody",)).propose(SyntheticSpace(64, 64, 64), [], None, 8, generator(0))
