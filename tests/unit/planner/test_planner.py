"""What the planner promises, whatever the policy."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallorn.core.registry import REGISTRY
from mallorn.services.planner.budgets import SMALLEST_ROUND
from mallorn.services.planner.eligible_tasks import HOPELESS_ROUNDS
from mallorn.services.planner.plan_rounds import plan_rounds
from mallorn.services.planner.planner_values import JobPlan, JobView
from tests.kits.policies_and_beliefs import job, measured, task

POLICIES = sorted(REGISTRY["policy"])
STILL = [50.0, 50.0] + [50.001] * 60


def apply(view: JobView, step: JobPlan, latency_us: float | None) -> JobView:
    """The job after every planned round has been measured."""
    tasks = {task.id: task for task in view.tasks}
    for round_ in step.rounds:
        tasks[round_.task_id] = measured(tasks[round_.task_id], round_.size, latency_us)
    planned = view.rounds_planned + len(step.rounds)
    return replace(view, tasks=tuple(tasks.values()), rounds_planned=planned)


shapes_strategy = st.lists(
    st.builds(
        lambda weight, flops: {"weight": weight, "flops": flops}, st.integers(1, 50), st.floats(0, 1e10)
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None)
@given(
    shapes=shapes_strategy,
    trials=st.integers(1, 300),
    size=st.one_of(st.none(), st.integers(4, 64)),
    max_open_rounds=st.integers(1, 5),
    task_trials=st.one_of(st.none(), st.integers(1, 60)),
    latencies=st.randoms(use_true_random=False),
)
def test_budgets_are_spent_and_never_exceeded(
    policy, shapes, trials, size, max_open_rounds, task_trials, latencies
) -> None:
    tasks = [task(i, **shape) for i, shape in enumerate(shapes)]
    known = {"policy": policy, "trials": trials, "round_size": size, "max_open_rounds": max_open_rounds}
    view = job(*tasks, **known, task_trials=task_trials)
    while not (step := plan_rounds(view)).finished:
        assert step.rounds, "neither finished nor anything to do"
        assert len(step.rounds) <= max_open_rounds
        view = apply(view, step, latencies.uniform(1, 1000))
        assert view.spent_trials <= trials
        assert all(t.trials <= (task_trials or trials) for t in view.tasks)
    within = min(trials, len(tasks) * (task_trials or trials))
    assert view.spent_trials == within or "nothing is worth another round" in step.finished


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None)
@given(
    left=st.floats(-5, 60),
    seconds=st.one_of(st.none(), st.floats(0.05, 3)),
    max_open_rounds=st.integers(1, 4),
    known=st.booleans(),
)
def test_what_is_planned_fits_the_seconds_left(policy, left, seconds, max_open_rounds, known) -> None:
    tasks = [task(i, [50.0, 40.0] if known else []) for i in range(4)]
    clock = {"seconds_left": left, "seconds_per_trial": seconds}
    step = plan_rounds(
        job(*tasks, policy=policy, max_open_rounds=max_open_rounds, trials=1000, round_size=None, **clock)
    )
    assert all(round_.size * (seconds or 0.0) <= left for round_ in step.rounds)
    one_worker = sum(round_.size for round_ in step.rounds) * (seconds or 0.0)
    assert one_worker <= max(0.0, left) * max(1, max_open_rounds - 1)
    if left <= 0:
        assert step.finished == "the time budget is spent"


def test_without_a_limit_of_trials_only_the_time_ends_a_job() -> None:
    falling = [1000.0 / at for at in range(1, 100)]
    view = job(*(task(i, falling) for i in range(3)), trials=None, seconds_left=60.0, seconds_per_trial=0.1)
    assert view.spent_trials > 200
    assert plan_rounds(view).rounds
    assert plan_rounds(replace(view, seconds_left=0.0)).finished == "the time budget is spent"


def test_without_a_limit_of_trials_the_first_pass_takes_its_share_of_the_time() -> None:
    tasks = [task(i) for i in range(8)]
    known = {"trials": None, "seconds_per_trial": 1.0, "round_size": None}
    (hasty, *_), (calm, *_) = (
        plan_rounds(job(*tasks, **known, seconds_left=left)).rounds for left in (64.0, 3600.0)
    )
    assert hasty.size < calm.size


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20, deadline=None)
@given(shapes=shapes_strategy, order=st.randoms(use_true_random=False))
def test_the_order_of_the_tasks_changes_nothing(policy, shapes, order) -> None:
    tasks = [task(i, [100.0 * (i + 1), 90.0], **shape) for i, shape in enumerate(shapes)]
    shuffled = tasks.copy()
    order.shuffle(shuffled)
    assert plan_rounds(job(*tasks, policy=policy)) == plan_rounds(job(*shuffled, policy=policy))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_reason_can_be_explained(policy) -> None:
    tasks = [task(0, [70.0, 60.0]), task(1, [5.0]), task(2), task(3, [None])]
    planned = plan_rounds(job(*tasks, policy=policy, max_open_rounds=4)).rounds
    assert len(planned) == 4
    for round_ in planned:
        reason = round_.reason
        assert reason.policy in (policy, "first-pass")
        assert isinstance(reason.score, float)
        assert reason.why
        assert reason.best_us == tasks[round_.task_id - 100].best_us
        ahead = reason.forecast
        assert ahead.low_us <= ahead.expected_us <= ahead.high_us


def test_the_first_pass_visits_every_task_before_any_twice() -> None:
    view = job(*(task(i) for i in range(5)), max_open_rounds=1)
    visited = []
    for _ in range(5):
        step = plan_rounds(view)
        visited.append(step.rounds[0].task_id)
        view = apply(view, step, 10.0)
    assert sorted(visited) == [100, 101, 102, 103, 104]


def test_a_task_that_cannot_matter_gets_no_visit_of_its_own() -> None:
    heavy = [task(i, [9000.0], flops=1e9) for i in range(6)]
    tiny = task(9, flops=1e4)
    assert plan_rounds(job(*heavy, tiny, max_open_rounds=1)).rounds[0].task_id != tiny.id
    called_often = replace(tiny, weight=100_000)
    assert plan_rounds(job(*heavy, called_often, max_open_rounds=1)).rounds[0].task_id == tiny.id


def test_a_mover_of_memory_without_flops_is_visited() -> None:
    assert plan_rounds(job(task(0, [100.0]), task(1, flops=0.0), max_open_rounds=1)).rounds[0].task_id == 101


def test_a_small_budget_still_reaches_many_tasks() -> None:
    view = job(*(task(i) for i in range(24)), trials=200, max_open_rounds=1)
    assert plan_rounds(view).rounds[0].size == SMALLEST_ROUND


def test_dynatune_makes_do_with_half_a_round_for_a_first_visit() -> None:
    new = [task(i) for i in range(3)]
    sizes = {name: plan_rounds(job(*new, policy=name, trials=5000)).rounds[0].size for name in POLICIES}
    assert sizes.pop("dynatune") == 8
    assert set(sizes.values()) == {16}


def test_with_slots_for_all_tasks_a_first_visit_is_a_full_round() -> None:
    step = plan_rounds(job(*(task(i) for i in range(3)), policy="dynatune", trials=5000, max_open_rounds=4))
    assert [round_.size for round_ in step.rounds] == [16, 16, 16]


def test_a_task_that_has_just_gained_does_not_rest() -> None:
    gained = measured(task(0, STILL), 16, 45.0)
    assert plan_rounds(job(gained, policy="dynatune", trials=10_000)).rounds


def test_warm_knowledge_counts_as_a_visit() -> None:
    known = task(0, known_us=5.0, flops=1e12)
    step = plan_rounds(job(known, task(1), max_open_rounds=1))
    assert step.rounds[0].task_id == 101


def test_a_workload_whose_first_round_is_open_gets_no_second_one() -> None:
    step = plan_rounds(
        job(task(0, open_sizes=(16,), workload_rounds=1), task(1, workload_rounds=1), max_open_rounds=4)
    )
    assert step == JobPlan()


def test_a_batch_that_failed_entirely_is_followed_by_another_searchers() -> None:
    failed_once = task(0, [None])
    assert plan_rounds(job(failed_once)).rounds[0].searcher == "random"
    assert plan_rounds(job(measured(failed_once, 16, None))).rounds[0].searcher is None
    assert plan_rounds(job(measured(failed_once, 16, 50.0))).rounds[0].searcher is None


def test_a_task_whose_rounds_all_fail_is_retired() -> None:
    hopeless = task(0, [None] * HOPELESS_ROUNDS)
    step = plan_rounds(job(hopeless, max_open_rounds=1))
    assert step.rounds == ()
    assert step.finished == "no task is left to tune"
    assert "default schedule" in step.retired[hopeless.id]


def test_a_task_with_nothing_left_to_try_gets_no_more_rounds() -> None:
    small = task(0, exhausted=True, known_us=5.0, rounds=1, trials=1)
    step = plan_rounds(job(small, task(1), max_open_rounds=2))
    assert [round_.task_id for round_ in step.rounds] == [101]
    assert step.retired == {small.id: "the space has no untried candidates after 1 trials"}
    assert plan_rounds(job(small)).finished == "no task is left to tune"


def test_tasks_that_a_job_does_not_ask_for_get_no_rounds() -> None:
    unwanted = task(0, left_out=True)
    step = plan_rounds(job(unwanted, task(1), max_open_rounds=2))
    assert [round_.task_id for round_ in step.rounds] == [101]
    assert step.retired == {unwanted.id: "the job asks for other tasks only"}
    assert plan_rounds(job(unwanted)).finished == "no task has a name that the job asks for"


def test_a_task_rests_when_nothing_is_expected_and_the_job_ends_in_words() -> None:
    still = task(0, STILL)
    step = plan_rounds(job(still, policy="dynatune", trials=10_000))
    assert step.rounds == ()
    assert step.retired[still.id].startswith("rests: ")
    assert step.finished.startswith("nothing is worth another round: no task has more than a ")


def test_a_resting_task_comes_back_when_the_picture_changes() -> None:
    resting = task(0, STILL, retired="rests: a 0.1% chance")
    assert plan_rounds(job(resting, policy="dynatune", trials=10_000)).retired == {}
    better = measured(measured(measured(resting, 16, 40.0), 16, 36.0), 16, 33.0)
    step = plan_rounds(job(better, policy="dynatune", trials=10_000))
    assert step.retired == {resting.id: ""}
    assert step.rounds[0].task_id == resting.id


@pytest.mark.parametrize("policy", ["random", "round-robin"])
def test_baselines_spend_their_budget_on_tasks_that_stand_still(policy) -> None:
    assert plan_rounds(job(task(0, STILL), policy=policy, trials=10_000)).rounds


def test_a_job_without_trials_is_over_at_once_and_says_so() -> None:
    step = plan_rounds(job(task(0), task(1), trials=0))
    assert (step.rounds, step.finished) == ((), "no trial was asked for")


def test_a_task_stops_at_its_own_budget() -> None:
    view = job(task(0, [50.0, 40.0]), task(1, [50.0, 40.0]), task_trials=40, max_open_rounds=2)
    assert [round_.size for round_ in plan_rounds(view).rounds] == [8, 8]
    spent = job(task(0, [50.0] * 3), task_trials=40)
    assert "the task's budget of 40 trials is spent" in plan_rounds(spent).retired.values()


def test_rounds_shrink_to_fit_the_time_that_is_left() -> None:
    known = task(0, known_us=5.0, rounds=1, trials=16)
    step = plan_rounds(job(known, seconds_left=4.0, seconds_per_trial=0.5))
    assert step.rounds[0].size == 8
    assert (
        plan_rounds(job(known, seconds_left=0.2, seconds_per_trial=0.5)).finished
        == "the time budget is spent"
    )


def test_a_job_with_time_left_waits_for_workloads_that_others_measure() -> None:
    elsewhere = task(0, known_us=5.0, workload_rounds=1)
    step = plan_rounds(job(elsewhere, seconds_left=100.0, seconds_per_trial=0.5))
    assert (step.rounds, step.finished) == ((), "")
    late = plan_rounds(job(elsewhere, seconds_left=0.2, seconds_per_trial=0.5))
    assert late.finished == "the time budget is spent"


def test_rounds_grow_with_evidence_and_with_idle_devices() -> None:
    known = {"round_size": None, "trials": 50_000}
    few = plan_rounds(job(task(0, [9.0, 8.0]), **known, max_open_rounds=1)).rounds[0].size
    many = plan_rounds(job(task(0, [9.0, 8.0]), **known, max_open_rounds=9)).rounds[0].size
    sure = (
        plan_rounds(job(task(0, [9.0 - 0.1 * at for at in range(40)]), **known, max_open_rounds=1))
        .rounds[0]
        .size
    )
    assert (few, many, sure) == (16, 48, 48)
    assert (
        plan_rounds(job(task(0, [9.0, 8.0]), round_size=None, max_open_rounds=9, trials=400)).rounds[0].size
        == 16
    )


def test_tuning_does_not_end_while_a_round_is_open() -> None:
    assert plan_rounds(job(task(0, open_sizes=(200,), workload_rounds=1))).finished == ""


def test_every_round_of_a_job_has_its_own_seed() -> None:
    view, seeds = job(*(task(i) for i in range(3))), []
    while not (step := plan_rounds(view)).finished:
        seeds += [round_.seed for round_ in step.rounds]
        view = apply(view, step, 10.0)
    assert len(set(seeds)) == len(seeds)
    assert all(0 < seed < 2**31 for seed in seeds)
