"""A pool runs tasks side by side; a task that crashes, hangs or waits costs only itself."""

import time
from collections.abc import Hashable, Iterator

import pytest

from workers.children.errors import ChildCrashed, ChildFailed, ChildTimeout
from workers.children.pool import ChildPool, Finished

MODULE = "tests.unit.children.misbehaving"


@pytest.fixture
def pool() -> Iterator[ChildPool]:
    with ChildPool(MODULE, 2) as pool:
        yield pool


def collect(pool: ChildPool, count: int) -> dict[Hashable, Finished]:
    """The next `count` ends by tag."""
    ends: dict[Hashable, Finished] = {}
    for _ in range(200):
        ends |= {end.tag: end for end in pool.poll(0.2)}
        if len(ends) >= count:
            return ends
    raise AssertionError(f"only {sorted(map(str, ends))} ended")


def test_tasks_run_side_by_side_and_keep_their_tags(pool: ChildPool) -> None:
    pool.submit("pid", {}, 20, "a")
    pool.submit("pid", {}, 20, ("b", 1))
    assert pool.free == 0
    ends = collect(pool, 2)
    assert ends["a"].result != ends["b", 1].result
    assert pool.free == 2


def test_a_quick_task_is_not_held_back_by_a_slow_one(pool: ChildPool) -> None:
    pool.submit("wait", {"seconds": 60}, 90, "slow")
    pool.submit("echo", {"value": 1}, 20, "quick")
    assert set(collect(pool, 1)) == {"quick"}
    assert pool.tags == ["slow"]


def test_nothing_to_wait_for_returns_at_once(pool: ChildPool) -> None:
    assert pool.poll(3600) == []


def test_failures_are_results_of_their_own_task(pool: ChildPool) -> None:
    pool.submit("segfault", {}, 20, "crash")
    pool.submit("fail", {"message": "no"}, 20, "fail")
    ends = collect(pool, 2)
    assert isinstance(ends["crash"].error, ChildCrashed)
    assert isinstance(ends["fail"].error, ChildFailed)


def test_a_hanging_task_ends_by_its_timeout_and_its_child_is_replaced(pool: ChildPool) -> None:
    pool.submit("loop", {}, 0.2, "hang")
    assert isinstance(collect(pool, 1)["hang"].error, ChildTimeout)
    for tag in range(4):
        pool.submit("echo", {"value": tag}, 20, tag)
        assert collect(pool, 1)[tag].result == tag


def test_time_spent_suspended_does_not_count(pool: ChildPool) -> None:
    pool.submit("pid", {}, 20, "warm")
    collect(pool, 1)
    pool.submit("wait", {"seconds": 0.01}, 0.5, "task")
    pool.suspend()
    assert pool.poll(0.8) == []
    pool.resume()
    assert collect(pool, 1)["task"].error is None


def test_starting_does_not_count_against_a_timeout(pool: ChildPool) -> None:
    pool.submit("echo", {"value": 1}, 0.001, "task")
    error = collect(pool, 1)["task"].error
    assert error is None or "did not start" not in error.message


def test_cancel_ends_what_runs_and_leaves_the_pool_usable(pool: ChildPool) -> None:
    pool.submit("loop", {}, 60, "endless")
    assert pool.cancel() == ["endless"]
    assert pool.free == 2
    pool.submit("echo", {"value": 1}, 20, "next")
    assert collect(pool, 1)["next"].result == 1


def test_suspended_children_resume_where_they_were(pool: ChildPool) -> None:
    pool.submit("pid", {}, 20, "warm")
    pid = collect(pool, 1)["warm"].result
    pool.suspend()
    time.sleep(0.05)
    pool.resume()
    pool.submit("pid", {}, 20, "again")
    assert collect(pool, 1)["again"].result == pid
