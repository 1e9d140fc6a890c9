"""Conformance kits: subclass one, give it its fixture, and every clause of the contract is a test."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from math import isfinite
from random import Random
from typing import Any

import pytest

from mallorn.services.planner.planner_values import Forecast, JobView, Point, TaskView
from mallorn.services.planner.policy import STARVATION_ROUNDS, Arm, Policy
from mallorn.services.planner.power_law_belief import PowerLaw

ROUND = 16
EXTREMES: tuple[tuple[float | None, ...], ...] = (
    (),
    (None,),
    (None, None, 50.0),
    (50.0,),
    (50.0, 50.0, 50.0, 50.0, 50.0),
    (1e-3, 1e9, 1e-3, None, 1e9),
    (1e9,) * 3,
    (1e-3,) * 12,
    (400.0, 300.0, 350.0, 180.0, 181.0, 180.5, 230.0, 179.0),
)


def task(index: int = 0, bests_us: Iterable[float | None] = (), **known: Any) -> TaskView:
    """A task whose standard rounds brought these results."""
    points = tuple(Point(ROUND * at, best) for at, best in enumerate(bests_us, start=1))
    failed = next((at for at, point in enumerate(reversed(points)) if point.best_us is not None), len(points))
    fresh = TaskView(
        id=100 + index,
        index=index,
        name=f"task{index}",
        weight=1,
        flops=1e6 * (index + 1),
        family="operator:matmul",
        trials=ROUND * len(points),
        rounds=len(points),
        points=points,
        failed_rounds=failed,
    )
    return replace(fresh, **known)


def job(*tasks: TaskView, **known: Any) -> JobView:
    """A job of these tasks with room for two rounds."""
    fresh = JobView(
        id="job",
        seed=7,
        policy="gradient",
        round_size=ROUND,
        trials=200,
        tasks=tasks,
        rounds_planned=0,
        max_open_rounds=2,
        seconds_left=None,
        seconds_per_trial=None,
    )
    return replace(fresh, **known)


def measured(view: TaskView, size: int, best_us: float | None) -> TaskView:
    """The task after one more round."""
    return replace(
        view,
        trials=view.trials + size,
        rounds=view.rounds + 1,
        points=(*view.points, Point(view.trials + size, best_us)),
        failed_rounds=0 if best_us is not None else view.failed_rounds + 1,
    )


def arms(tasks: Sequence[TaskView], size: int = ROUND) -> list[Arm]:
    """All tasks as arms whose rounds take half a second a candidate."""
    ahead = PowerLaw().forecast(tasks, size)
    return [Arm(task, forecast, size, size / 2) for task, forecast in zip(tasks, ahead, strict=True)]


class PolicyTestCase:
    """Give the fixture `policy`."""

    @pytest.fixture
    def policy(self) -> Policy:
        raise NotImplementedError

    @pytest.fixture
    def tasks(self) -> list[TaskView]:
        families = ("operator:conv2d", "operator:matmul")
        return [
            task(at, bests, weight=1 + at % 3, family=families[at % 2]) for at, bests in enumerate(EXTREMES)
        ]

    def test_the_order_of_the_arms_changes_nothing(self, policy: Policy, tasks: list[TaskView]) -> None:
        for seed in range(5):
            choice = policy.choose(arms(tasks), tasks, seed)
            shuffled = tasks.copy()
            Random(seed).shuffle(shuffled)
            again = policy.choose(arms(shuffled), shuffled, seed)
            assert (again.task.id, again.score, again.why) == (choice.task.id, choice.score, choice.why)

    def test_only_an_arm_is_chosen(self, policy: Policy, tasks: list[TaskView]) -> None:
        some = arms(tasks[2:5])
        for seed in range(10):
            choice = policy.choose(some, tasks, seed)
            assert any(choice.task is arm.task for arm in some)
            assert isfinite(choice.score)
            assert choice.why

    def test_a_single_arm_is_chosen(self, policy: Policy) -> None:
        only = [task(3)]
        assert policy.choose(arms(only), only, 0).task is only[0]

    def test_no_task_is_starved(self, policy: Policy) -> None:
        tasks = [task(0, [9e5, 9e5]), task(1, [1.0, 1.0]), task(2, [1.0, 1.0])]
        for seed in range(3 * (STARVATION_ROUNDS + 5)):
            chosen = policy.choose(arms(tasks), tasks, seed)
            at = tasks.index(chosen.task)
            tasks[at] = measured(tasks[at], chosen.size or ROUND, tasks[at].best_us)
        assert min(view.rounds for view in tasks) > 2


class BeliefTestCase:
    """What the planner relies on in every forecast."""

    @pytest.fixture
    def belief(self) -> PowerLaw:
        return PowerLaw()

    @pytest.fixture
    def tasks(self) -> list[TaskView]:
        flops = (0.0, 1e3, 1e6, 1e12)
        return [
            task(at, bests, flops=flops[at % 4], known_us=80.0 if at % 5 == 0 else None)
            for at, bests in enumerate(EXTREMES)
        ]

    @pytest.mark.parametrize("size", [1, 4, 16, 64])
    def test_every_forecast_is_sound(self, belief: PowerLaw, tasks: list[TaskView], size: int) -> None:
        for view, ahead in zip(tasks, belief.forecast(tasks, size), strict=True):
            assert_sound(ahead, view)

    def test_the_order_of_the_tasks_changes_nothing(self, belief: PowerLaw, tasks: list[TaskView]) -> None:
        forwards = belief.forecast(tasks, ROUND)
        assert belief.forecast(tasks[::-1], ROUND)[::-1] == forwards

    def test_what_was_asked_before_changes_nothing(self, belief: PowerLaw, tasks: list[TaskView]) -> None:
        before = belief.forecast(tasks, ROUND)
        for _ in repeat(None, 2):
            belief.forecast([measured(view, ROUND, 33.0) for view in tasks], ROUND)
        assert belief.forecast(tasks, ROUND) == before

    def test_no_task_at_all_is_no_forecast(self, belief: PowerLaw) -> None:
        assert belief.forecast([], ROUND) == []

    def test_siblings_inform_a_task_that_was_never_measured(self, belief: PowerLaw) -> None:
        new = task(0, flops=1e6)
        fast = [task(at, [10.0] * 4, flops=1e6) for at in range(1, 6)]
        slow = [task(at, [9000.0] * 4, flops=1e6) for at in range(1, 6)]
        after_fast, *_ = belief.forecast([new, *fast], ROUND)
        after_slow, *_ = belief.forecast([new, *slow], ROUND)
        assert after_fast.expected_us < after_slow.expected_us


def assert_sound(ahead: Forecast, view: TaskView) -> None:
    """Check what every forecast must satisfy."""
    assert 0 < ahead.low_us <= ahead.expected_us <= ahead.high_us
    assert isfinite(ahead.high_us)
    assert ahead.gain_us >= 0
    assert isfinite(ahead.gain_us)
    assert ahead.gain_sd_us >= 0
    assert isfinite(ahead.gain_sd_us)
    assert 0 <= ahead.gain_probability <= 1
    if view.best_us is not None:
        assert ahead.gain_us <= view.best_us
