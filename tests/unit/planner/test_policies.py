"""Every registered policy keeps the contract; and what is peculiar to each."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallorn.core.registry import REGISTRY, resolve
from mallorn.services.planner.familyseer import small_round_size
from mallorn.services.planner.plan_rounds import plan_rounds
from mallorn.services.planner.policy import Policy
from tests.kits.policies_and_beliefs import ROUND, PolicyTestCase, arms, job, measured, task

POLICIES = sorted(REGISTRY["policy"])
# A foresee round goes to a sibling of whoever the gradient picked: its own weight decides who that was.
WEIGHING = sorted(set(POLICIES) - {"familyseer"})

bests = st.lists(st.one_of(st.none(), st.floats(1e-3, 1e9)), max_size=6)
histories = st.lists(st.tuples(bests, st.integers(1, 40)), min_size=1, max_size=6)


@pytest.mark.parametrize("name", POLICIES)
class TestEveryPolicy(PolicyTestCase):
    @pytest.fixture
    def policy(self, name: str) -> Policy:
        return resolve("policy", name)()


@pytest.mark.parametrize("name", WEIGHING)
@settings(max_examples=25, deadline=None)
@given(histories=histories, seed=st.integers(0, 100))
def test_a_chosen_task_stays_chosen_when_its_weight_doubles(name, histories, seed) -> None:
    policy = resolve("policy", name)()
    tasks = [task(at, seen, weight=weight) for at, (seen, weight) in enumerate(histories)]
    chosen = policy.choose(arms(tasks), tasks, seed).task.index
    seen, weight = histories[chosen]
    tasks[chosen] = task(chosen, seen, weight=2 * weight)
    assert policy.choose(arms(tasks), tasks, seed).task.index == chosen


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=15, deadline=None)
# Tasks that are alike to the last digit are told apart by rounding alone.
@given(
    histories=st.lists(
        st.lists(st.floats(1.0, 1e4), min_size=1, max_size=6), min_size=1, max_size=6, unique_by=min
    )
)
def test_a_machine_a_thousand_times_slower_is_tuned_alike(name, histories) -> None:
    fast = [task(at, seen) for at, seen in enumerate(histories)]
    slow = [task(at, [1024.0 * best for best in seen]) for at, seen in enumerate(histories)]
    left, right = (plan_rounds(job(*tasks, policy=name, trials=10_000)) for tasks in (fast, slow))
    assert [round_.task_id for round_ in left.rounds] == [round_.task_id for round_ in right.rounds]


def test_gradient_prefers_the_larger_weighted_latency() -> None:
    step = plan_rounds(job(task(0, [10.0]), task(1, [10.0], weight=9), max_open_rounds=1))
    assert step.rounds[0].task_id == 101
    assert "9 x 10.0 us" in step.rounds[0].reason.why


def test_dynatune_goes_where_a_second_brings_the_most() -> None:
    falling, flat = [100.0, 80.0, 65.0, 55.0], [100.0, 100.0, 100.1, 100.0]
    step = plan_rounds(job(task(0, flat), task(1, falling), max_open_rounds=1, policy="dynatune"))
    assert step.rounds[0].task_id == 101
    quick = [task(0, falling, seconds_per_trial=0.1), task(1, falling, seconds_per_trial=1.0)]
    assert plan_rounds(job(*quick, max_open_rounds=1, policy="dynatune")).rounds[0].task_id == 100


def test_dynatune_does_not_fall_for_the_fastest_kernel() -> None:
    fastest = task(0, [10.0] * 5, flops=1e12)
    slowest = task(1, [900.0, 700.0, 560.0], flops=1e6)
    assert plan_rounds(job(fastest, slowest, max_open_rounds=1, policy="dynatune")).rounds[0].task_id == 101


def test_dynatune_scores_are_shares_of_the_total_a_second() -> None:
    step = plan_rounds(job(task(0, [50.0, 40.0]), task(1, [20.0, 19.0]), policy="dynatune"))
    assert all(0 < round_.reason.score < 1 for round_ in step.rounds)


def test_a_round_of_the_best_member_is_followed_by_a_foresee_round_of_a_sibling() -> None:
    heavy, light = task(0, [900.0, 700.0]), task(1, [90.0])
    stranger = task(2, [500.0], family="operator:conv2d")
    tasks = [heavy, light, stranger]
    choice = resolve("policy", "familyseer")().choose(arms(tasks), tasks, 0)
    assert (choice.task, choice.size) == (light, 4)
    paid = [heavy, measured(light, 4, 88.0), stranger]
    assert resolve("policy", "familyseer")().choose(arms(paid), paid, 0).size is None


def test_a_foresee_round_in_flight_is_not_planned_twice() -> None:
    tasks = [task(0, [900.0, 700.0]), task(1, [90.0], open_sizes=(4,), workload_rounds=1), task(2, [80.0])]
    choice = resolve("policy", "familyseer")().choose(arms([tasks[0], tasks[2]]), tasks, 0)
    assert choice.size is None


def test_a_family_of_one_owes_nothing() -> None:
    tasks = [task(0, [900.0, 700.0, 600.0]), task(1, [90.0], family="operator:conv2d")]
    assert resolve("policy", "familyseer")().choose(arms(tasks), tasks, 0).size is None


def test_a_foresee_round_is_a_quarter_but_enough() -> None:
    assert [small_round_size(size) for size in (1, 4, 16, 64)] == [1, 4, 4, 16]


def test_random_visits_every_task() -> None:
    policy, tasks = resolve("policy", "random")(), [task(at, [5.0]) for at in range(4)]
    chosen = {policy.choose(arms(tasks, ROUND), tasks, seed).task.index for seed in range(60)}
    assert chosen == {0, 1, 2, 3}
