"""The budget `auto`: when a job without trials and minutes goes on, and when it ends."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.sim.curves import ModelCurves
from benchmarks.sim.play import Run, play
from benchmarks.sim.state import new_job
from benchmarks.sim.synthetic import flat, smooth
from mallorn.core.registry import REGISTRY
from mallorn.core.values.expected_gain import WORTH
from mallorn.services.planner.budgets import FAIR_ROUNDS, MOST_A_TASK
from mallorn.services.planner.plan_rounds import plan_rounds
from mallorn.services.planner.planner_values import JobView
from tests.kits.policies_and_beliefs import job, measured, task

QUIET = [50.0] * 6
RESTING = [50.0] * 16
STEEP = [400.0, 200.0, 100.0]


def auto(*tasks: object, **known: object) -> JobView:
    return job(*tasks, **{"trials": None, "round_size": None, "policy": "dynatune"} | known)  # type: ignore[arg-type]


def played(model: ModelCurves, policy: str = "dynatune", devices: int = 1) -> Run:
    sim = new_job(model, policy, 0, max_open_rounds=devices + 1)
    sim.budget = None
    return play(sim, devices, model.final_us)


def test_where_nothing_comes_it_ends_and_says_what_more_would_bring() -> None:
    step = plan_rounds(auto(*(task(at, QUIET) for at in range(8))))
    assert not step.rounds
    assert step.finished.startswith("the next 100 trials would bring 0.")
    assert step.outlook is not None
    assert step.outlook.gain < WORTH
    assert step.outlook.trials == 0
    assert step.outlook.expected_us == step.outlook.current_us == 8 * 50.0


def test_where_something_comes_it_goes_on_and_says_how_far() -> None:
    step = plan_rounds(auto(*(task(at, STEEP) for at in range(8))))
    assert step.rounds
    assert not step.finished
    assert step.outlook is not None
    assert step.outlook.gain > WORTH
    assert step.outlook.trials > 100
    assert step.outlook.expected_us < step.outlook.current_us == 800.0


def test_where_every_task_rests_hardly_anything_is_expected() -> None:
    step = plan_rounds(auto(*(task(at, RESTING) for at in range(8))))
    assert step.finished == "the next 100 trials would bring under 0.1 %"


def test_one_task_that_still_falls_is_enough() -> None:
    step = plan_rounds(auto(task(0, STEEP), *(task(at, QUIET) for at in range(1, 6))))
    assert 100 in [planned.task_id for planned in step.rounds]


def test_no_task_that_matters_is_left_before_it_had_a_fair_look() -> None:
    tasks = [task(at, QUIET) for at in range(30)]
    new = task(30, [50.0, 50.0])
    step = plan_rounds(auto(*tasks, new, max_open_rounds=5))
    assert [planned.task_id for planned in step.rounds] == [new.id], "the others are not worth a round"
    assert plan_rounds(auto(*tasks, task(30, [50.0] * FAIR_ROUNDS))).finished


def test_a_task_that_is_worth_nothing_is_not_looked_at_twice() -> None:
    tiny = task(20, [0.01])
    assert plan_rounds(auto(*(task(at, QUIET) for at in range(20)), tiny)).finished


def test_no_outlook_before_every_task_that_matters_has_a_time() -> None:
    assert plan_rounds(auto(task(0, STEEP), task(1))).outlook is None
    assert plan_rounds(auto(task(0, STEEP), task(1, [None] * 3))).outlook is not None, "one is given up"


def test_what_the_machine_cannot_do_is_not_waited_for() -> None:
    falling = [task(at, STEEP, limit_us=99.9) for at in range(4)]
    step = plan_rounds(auto(*falling))
    assert step.finished == (
        "100 % of what this machine computes for these tasks; the next 100 trials would bring under 0.1 %"
    )
    beaten = [replace(each, limit_us=150.0) for each in falling]
    assert plan_rounds(auto(*beaten)).rounds, "a limit that was beaten by far was none"
    slightly_beaten = [replace(each, limit_us=100.1) for each in falling]
    assert plan_rounds(auto(*slightly_beaten)).finished == step.finished


def test_an_end_needs_the_limit_of_every_task_to_tell_the_share() -> None:
    outlook = plan_rounds(auto(task(0, QUIET, limit_us=25.0), task(1, QUIET))).outlook
    assert outlook is not None
    assert outlook.limit_share is None
    outlook = plan_rounds(auto(task(0, QUIET, limit_us=25.0), task(1, QUIET, limit_us=10.0))).outlook
    assert outlook is not None
    assert outlook.limit_share == pytest.approx(0.35)


def test_rounds_that_are_open_may_still_bring_something() -> None:
    open_round = replace(task(0, QUIET), open_sizes=(16,), workload_rounds=1)
    step = plan_rounds(auto(open_round, *(task(at, QUIET) for at in range(1, 8))))
    assert (step.rounds, step.finished) == ((), "")


def test_trials_and_minutes_override_it() -> None:
    quiet = [task(at, QUIET) for at in range(8)]
    assert plan_rounds(job(*quiet, policy="dynatune", trials=5000)).rounds
    assert plan_rounds(job(*quiet, policy="dynatune", trials=None, seconds_left=500.0)).rounds


@pytest.mark.parametrize("policy", sorted(REGISTRY["policy"]))
@settings(max_examples=10, deadline=None)
@given(
    weights=st.lists(st.integers(1, 50), min_size=1, max_size=3),
    max_open_rounds=st.integers(1, 4),
    chance=st.randoms(use_true_random=False),
)
def test_it_never_stands_still_and_ends_under_its_ceiling(policy, weights, max_open_rounds, chance) -> None:
    """However noise falls, and whatever fails."""
    view = auto(
        *(task(at, weight=weight) for at, weight in enumerate(weights)),
        max_open_rounds=max_open_rounds,
        policy=policy,
    )
    while not (step := plan_rounds(view)).finished:
        assert step.rounds
        sizes = {planned.task_id: planned.size for planned in step.rounds}
        found = {at: chance.choice([None, chance.uniform(1, 1000)]) for at in sizes}
        tasks = (measured(t, sizes[t.id], found[t.id]) if t.id in sizes else t for t in view.tasks)
        view = replace(view, tasks=tuple(tasks), rounds_planned=view.rounds_planned + len(sizes))
        assert view.spent_trials <= MOST_A_TASK * len(weights)


def test_a_job_that_still_hopes_ends_at_its_ceiling_and_says_what_it_hoped_for() -> None:
    step = plan_rounds(auto(task(0, STEEP, trials=MOST_A_TASK)))
    assert step.finished.startswith(
        f"the {MOST_A_TASK} trials a task are spent that a job gets by itself; the next"
    )


def test_drawn_curves_are_left_near_their_end_and_flat_ones_early() -> None:
    falling, still = played(smooth(0)), played(flat(0))
    assert falling.steps[-1].latency_us <= 1.05 * falling.final_us
    assert still.steps[-1].latency_us <= 1.02 * still.final_us
    assert still.steps[-1].trials < 0.6 * falling.steps[-1].trials


def test_a_resumed_job_goes_by_its_trials_and_a_second_auto_ends_at_once() -> None:
    ended = auto(*(task(at, QUIET) for at in range(8)))
    assert plan_rounds(ended).finished == plan_rounds(ended).finished
    assert plan_rounds(replace(ended, trials=ended.spent_trials + 64)).rounds
