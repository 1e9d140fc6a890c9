"""What the planner promises, whatever the policy."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallorn.core.names import REGISTRY
from services.planner.budgets import SMALLEST_ROUND
from services.planner.planner import plan
from services.planner.resting import HOPELESS_ROUNDS
from services.planner.values import JobView, Plan, Point, TaskView

POLICIES = sorted(REGISTRY["policy"])


def task(index: int = 0, **known: object) -> TaskView:
    fresh = TaskView(
        id=100 + index,
        index=index,
        name=f"task{index}",
        weight=1,
        flops=1e6 * (index + 1),
        family="operator:matmul",
        trials=0,
        in_flight=0,
        blocked=False,
        rounds=0,
    )
    return replace(fresh, **known)  # type: ignore[arg-type]


def job(*tasks: TaskView, **known: object) -> JobView:
    fresh = JobView(
        id="job",
        seed=7,
        policy="gradient",
        round_size=16,
        trials=200,
        tasks=tasks,
        rounds_planned=0,
        slots=2,
        seconds_left=None,
        seconds_per_trial=None,
    )
    return replace(fresh, **known)  # type: ignore[arg-type]


def apply(view: JobView, step: Plan, latency_us: float) -> JobView:
    """The job after every planned round has been measured."""
    sizes = {round_.task_id: round_.size for round_ in step.rounds}
    tasks = tuple(
        replace(
            t,
            trials=t.trials + sizes[t.id],
            rounds=t.rounds + 1,
            points=(*t.points, Point(t.trials + sizes[t.id], latency_us)),
        )
        if t.id in sizes
        else t
        for t in view.tasks
    )
    return replace(view, tasks=tasks, rounds_planned=view.rounds_planned + len(step.rounds))


tasks_strategy = st.lists(
    st.builds(
        lambda weight, flops: {"weight": weight, "flops": flops},
        st.integers(1, 50),
        st.floats(0, 1e10),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(
    shapes=tasks_strategy,
    trials=st.integers(1, 400),
    size=st.integers(1, 64),
    slots=st.integers(1, 5),
    latencies=st.randoms(use_true_random=False),
)
def test_a_budget_is_spent_to_the_last_trial_and_never_exceeded(
    policy, shapes, trials, size, slots, latencies
) -> None:
    tasks = [task(i, **shape) for i, shape in enumerate(shapes)]
    view = job(*tasks, policy=policy, trials=trials, round_size=size, slots=slots)
    while not (step := plan(view)).finished:
        assert step.rounds, "neither finished nor anything to do"
        assert len(step.rounds) <= slots
        view = apply(view, step, latencies.uniform(1, 1000))
        assert view.spent <= trials
    assert view.spent == trials or "nothing is worth another round" in step.finished


@pytest.mark.parametrize("policy", POLICIES)
@given(shapes=tasks_strategy, order=st.randoms(use_true_random=False))
def test_the_order_of_the_tasks_changes_nothing(policy, shapes, order) -> None:
    tasks = [task(i, known_us=100.0 * (i + 1), rounds=1, **shape) for i, shape in enumerate(shapes)]
    shuffled = tasks.copy()
    order.shuffle(shuffled)
    assert plan(job(*tasks, policy=policy)).rounds == plan(job(*shuffled, policy=policy)).rounds


def test_the_first_pass_visits_every_task_before_any_twice() -> None:
    view = job(*(task(i) for i in range(5)), slots=1)
    visited = []
    for _ in range(5):
        step = plan(view)
        visited.append(step.rounds[0].task_id)
        view = apply(view, step, 10.0)
    assert sorted(visited) == [100, 101, 102, 103, 104]


def test_a_small_budget_still_reaches_many_tasks() -> None:
    view = job(*(task(i) for i in range(24)), trials=200, slots=1)
    assert plan(view).rounds[0].size == SMALLEST_ROUND


def test_warm_knowledge_counts_as_a_visit() -> None:
    known = task(0, known_us=5.0, flops=1e12)
    step = plan(job(known, task(1), slots=1))
    assert step.rounds[0].task_id == 101


def test_a_workload_with_an_open_round_gets_no_second_one() -> None:
    step = plan(job(task(0, in_flight=16, blocked=True), task(1, blocked=True), slots=4))
    assert step == Plan()


def test_gradient_prefers_the_larger_weighted_latency() -> None:
    small = task(0, known_us=10.0, rounds=1, trials=16)
    large = task(1, known_us=10.0, rounds=1, trials=16, weight=9)
    step = plan(job(small, large, slots=1))
    assert step.rounds[0].task_id == large.id
    assert "9 x 10.0 us" in step.rounds[0].reason["why"]


def test_a_task_whose_rounds_all_fail_is_tried_again_and_then_retired() -> None:
    failing = task(0, rounds=1, failed_rounds=1, trials=16)
    assert plan(job(failing, slots=1)).rounds[0].task_id == failing.id
    hopeless = replace(failing, failed_rounds=HOPELESS_ROUNDS, rounds=HOPELESS_ROUNDS)
    step = plan(job(hopeless, slots=1))
    assert step.rounds == ()
    assert step.finished == "no task is left to tune"
    assert "default schedule" in step.retired[hopeless.id]


def test_a_task_with_nothing_left_to_try_gets_no_more_rounds() -> None:
    small = task(0, exhausted=True, known_us=5.0, rounds=1, trials=1)
    step = plan(job(small, task(1), slots=2))
    assert [round_.task_id for round_ in step.rounds] == [101]
    assert step.retired == {small.id: "its space has nothing left to try after 1 trials"}
    assert plan(job(small)).finished == "no task is left to tune"


def test_rounds_shrink_to_fit_the_time_that_is_left() -> None:
    known = task(0, known_us=5.0, rounds=1, trials=16)
    step = plan(job(known, seconds_left=4.0, seconds_per_trial=0.5))
    assert step.rounds[0].size == 8
    assert plan(job(known, seconds_left=0.2, seconds_per_trial=0.5)).finished == "the time budget is spent"


def test_tuning_does_not_end_while_a_round_is_open() -> None:
    assert plan(job(task(0, in_flight=200, blocked=True))).finished == ""


def test_every_round_of_a_job_has_its_own_seed() -> None:
    view, seeds = job(*(task(i) for i in range(3))), []
    while not (step := plan(view)).finished:
        seeds += [round_.seed for round_ in step.rounds]
        view = apply(view, step, 10.0)
    assert len(set(seeds)) == len(seeds)
    assert all(0 < seed < 2**31 for seed in seeds)
