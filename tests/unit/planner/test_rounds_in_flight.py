"""Several rounds of one workload in flight: which tasks get them, and how many."""

import pytest

from mallorn.services.planner.budgets import MOST_IN_FLIGHT, MOST_IN_FLIGHT_BY_TIME
from mallorn.services.planner.plan_rounds import plan_rounds
from mallorn.services.planner.planner_values import JobView, TaskView
from tests.kits.policies_and_beliefs import job, task

MANY = 100_000  # trials, so that no share of the budget limits anything
POLICIES = ("dynatune", "gradient", "familyseer", "round-robin", "random")


def falling(index: int = 0, *open_sizes: int, **known: object) -> TaskView:
    """A task that has gained in each round, with open rounds of its own."""
    fields = {"open_sizes": open_sizes, "workload_rounds": len(open_sizes), **known}
    return task(index, [90.0, 60.0, 40.0], **fields)


def counts(view: JobView) -> list[int]:
    """How many rounds of each task are planned."""
    planned = [round_.task_id for round_ in plan_rounds(view).rounds]
    return [planned.count(each.id) for each in view.tasks]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_task_gets_a_further_round_only_when_no_other_may_have_its_first(policy: str) -> None:
    tasks = [falling(0), falling(1, 16), falling(2)]
    for room, expected in ((2, [1, 0, 1]), (4, [2, 1, 1]), (5, [2, 1, 2])):
        view = job(*tasks, policy=policy, trials=MANY, max_open_rounds=1 + room)
        found = counts(view)
        assert sum(found) == room
        assert room == 4 or found == expected
        assert [each + len(one.open_sizes) for each, one in zip(found, tasks, strict=True)] != [3, 1, 1]


def test_four_rounds_of_a_workload_are_in_flight_at_most() -> None:
    assert counts(job(falling(), trials=MANY, max_open_rounds=20)) == [MOST_IN_FLIGHT] == [4]
    assert counts(job(falling(0, 16, 16), trials=MANY, max_open_rounds=20)) == [2]


def test_rounds_of_other_jobs_count() -> None:
    shared = falling(0, 16, workload_rounds=3)
    assert counts(job(shared, falling(1), trials=MANY, max_open_rounds=20)) == [1, 4]


def test_a_job_without_a_round_of_a_task_gets_one_beside_those_of_others_whatever_its_budget() -> None:
    """Or else a job with many trials, which always has one in flight, would keep it out."""
    for others, expected in ((1, 1), (4, 1), (7, 1), (8, 0)):
        assert counts(job(falling(workload_rounds=others), trials=64, max_open_rounds=9)) == [expected]


@pytest.mark.parametrize("brought", [(), (None,), (None, None)])
def test_a_tasks_first_result_comes_before_any_further_round(brought: tuple[None, ...]) -> None:
    assert counts(job(task(0, brought), trials=MANY, max_open_rounds=20)) == [1]
    known = task(0, brought, known_us=5.0)
    assert counts(job(known, trials=MANY, max_open_rounds=20)) == [1]


@pytest.mark.parametrize(
    ("trials", "in_flight"), [(80, 1), (127, 1), (128, 2), (191, 2), (192, 3), (256, 4), (1000, 4)]
)
def test_a_quarter_of_a_tasks_trials_may_be_in_flight(trials: int, in_flight: int) -> None:
    assert counts(job(falling(), trials=trials, max_open_rounds=20)) == [in_flight]
    begun = job(falling(0, 16), trials=trials, max_open_rounds=20)
    assert counts(begun) == [in_flight - 1]


def test_a_tasks_share_of_the_budget_is_that_of_the_tasks_that_still_get_rounds() -> None:
    """48 trials are measured of each, so that 112 are left: for one task, or 56 for each of two."""
    assert counts(job(falling(0), falling(1, left_out=True), trials=208, max_open_rounds=20)) == [2, 0]
    assert counts(job(falling(0), falling(1), trials=208, max_open_rounds=20)) == [1, 1]


def test_a_tasks_own_budget_limits_its_rounds_in_flight() -> None:
    assert counts(job(falling(), trials=MANY, task_trials=128, max_open_rounds=20)) == [2]


def test_the_budget_is_spent_to_the_last_trial_and_no_further() -> None:
    view = job(task(0, [50.0, 40.0] * 30), trials=60 * 16 + 40, max_open_rounds=20, policy="round-robin")
    assert [round_.size for round_ in plan_rounds(view).rounds] == [16, 16, 8]
    one = task(0, [50.0, 40.0] * 10)
    both = job(one, trials=MANY, task_trials=20 * 16 + 24, max_open_rounds=20, policy="round-robin")
    assert [round_.size for round_ in plan_rounds(both).rounds] == [16, 8]


def test_a_job_with_a_time_budget_has_up_to_eight_and_needs_no_quarter() -> None:
    timed = {"trials": None, "seconds_left": 3600.0, "seconds_per_trial": 0.5}
    assert counts(job(falling(), **timed, max_open_rounds=20)) == [MOST_IN_FLIGHT_BY_TIME] == [8]
    brief = timed | {"seconds_left": 60.0}
    assert counts(job(falling(), **brief, max_open_rounds=5)) == [5]
    assert counts(job(task(0), **timed, max_open_rounds=20)) == [1]


def test_without_a_budget_a_quarter_of_the_expected_trials_may_be_in_flight() -> None:
    hopeful = task(0, [90.0, 60.0, 40.0, 30.0])
    assert counts(job(hopeful, trials=None, max_open_rounds=20)) == [4]
    light, heavy = task(0, [200.0, 199.9]), task(1, [9000.0], left_out=True)
    assert counts(job(light, heavy, trials=None, max_open_rounds=20)) == [1, 0]


def test_open_rounds_are_counted_not_tasks() -> None:
    view = job(falling(0, 16, 16), falling(1, 16), trials=MANY, max_open_rounds=4)
    assert view.open_rounds == 3
    assert sum(counts(view)) == 1
    measured_but_open = job(falling(0, 0, 0), trials=MANY, max_open_rounds=2)
    assert plan_rounds(measured_but_open).rounds == ()


def test_a_small_round_in_flight_beside_a_full_one_counts_as_small() -> None:
    """A family with one full round more than small ones is due one small round, however many are open."""
    tasks = [task(0, [90.0, 60.0]), task(1, [80.0]), task(2, [70.0])]
    due = job(*tasks, policy="familyseer", trials=MANY, max_open_rounds=4)
    sizes = [round_.size for round_ in plan_rounds(due).rounds]
    assert sizes.count(4) == 1
    begun = task(1, [80.0], open_sizes=(16, 4), workload_rounds=2)
    again = job(tasks[0], begun, tasks[2], policy="familyseer", trials=MANY, max_open_rounds=4)
    assert [round_.size for round_ in plan_rounds(again).rounds] == [16, 16]
