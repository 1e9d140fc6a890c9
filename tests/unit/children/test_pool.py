"""A pool runs tasks side by side; a task that crashes, hangs or waits costs only itself."""

import time
from collections.abc import Hashable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fixtures.waiting import PATIENCE, wait_for
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

    def enough() -> bool:
        ends.update({end.tag: end for end in pool.poll(0.2)})
        return len(ends) >= count

    wait_for(enough, f"{count} of the tasks {pool.tags} to end")
    return ends


def test_tasks_run_side_by_side_and_keep_their_tags(pool: ChildPool) -> None:
    pool.submit("pid", {}, PATIENCE, "a")
    pool.submit("pid", {}, PATIENCE, ("b", 1))
    assert pool.free == 0
    ends = collect(pool, 2)
    assert ends["a"].result != ends["b", 1].result
    assert pool.free == 2


def test_a_quick_task_is_not_held_back_by_a_slow_one(pool: ChildPool) -> None:
    pool.submit("wait", {"seconds": 3600}, 3600, "slow")
    pool.submit("echo", {"value": 1}, PATIENCE, "quick")
    assert set(collect(pool, 1)) == {"quick"}
    assert pool.tags == ["slow"]


def test_nothing_to_wait_for_returns_at_once(pool: ChildPool) -> None:
    assert pool.poll(3600) == []


def test_failures_are_results_of_their_own_task(pool: ChildPool) -> None:
    pool.submit("segfault", {}, PATIENCE, "crash")
    pool.submit("fail", {"message": "no"}, PATIENCE, "fail")
    ends = collect(pool, 2)
    assert isinstance(ends["crash"].error, ChildCrashed)
    assert isinstance(ends["fail"].error, ChildFailed)


def test_a_hanging_task_ends_by_its_timeout_and_its_child_is_replaced(pool: ChildPool) -> None:
    pool.submit("loop", {}, 0.2, "hang")
    assert isinstance(collect(pool, 1)["hang"].error, ChildTimeout)
    for tag in range(4):
        pool.submit("echo", {"value": tag}, PATIENCE, tag)
        assert collect(pool, 1)[tag].result == tag


def test_time_spent_suspended_does_not_count(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = SimpleNamespace(monotonic=time.monotonic)
    monkeypatch.setattr("workers.children.pool.time", clock)
    pool.submit("pid", {}, PATIENCE, "warm")
    collect(pool, 1)
    pool.submit("wait_for_file", {"path": str(tmp_path / "file")}, PATIENCE, "task")
    pool.suspend()
    clock.monotonic = lambda: time.monotonic() + 3600
    assert pool.poll(0) == []
    pool.resume()
    (tmp_path / "file").touch()
    assert collect(pool, 1)["task"].error is None


def test_starting_does_not_count_against_a_timeout(pool: ChildPool) -> None:
    pool.submit("echo", {"value": 1}, 0.001, "task")
    error = collect(pool, 1)["task"].error
    assert error is None or "did not start" not in error.message


def test_cancel_ends_what_runs_and_leaves_the_pool_usable(pool: ChildPool) -> None:
    pool.submit("loop", {}, PATIENCE, "endless")
    assert pool.cancel() == ["endless"]
    assert pool.free == 2
    pool.submit("echo", {"value": 1}, PATIENCE, "next")
    assert collect(pool, 1)["next"].result == 1


def test_suspended_children_resume_where_they_were(pool: ChildPool) -> None:
    pool.submit("pid", {}, PATIENCE, "warm")
    pid = collect(pool, 1)["warm"].result
    pool.suspend()
    time.sleep(0.05)
    pool.resume()
    pool.submit("pid", {}, PATIENCE, "again")
    assert collect(pool, 1)["again"].result == pid
