"""A pool runs tasks side by side; a task that crashes, hangs or waits costs only itself."""

import time
from collections.abc import Hashable, Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from mallorn.workers.subprocesses.errors import ChildCrashed, ChildFailed, ChildTimeout
from mallorn.workers.subprocesses.process_pool import ChildPool, Finished
from tests.fixtures.waiting import wait_for
from tests.unit.children.faces import Misbehaving


@pytest.fixture
def pool() -> Iterator[ChildPool[Any]]:
    with ChildPool(Misbehaving, 2) as pool:
        yield pool


def collect(pool: ChildPool[Any], count: int) -> dict[Hashable, Finished[Any]]:
    """The next `count` ends by tag."""
    ends: dict[Hashable, Finished[Any]] = {}

    def enough() -> bool:
        ends.update({end.tag: end for end in pool.poll(0.2)})
        return len(ends) >= count

    wait_for(enough, f"{count} of the tasks {pool.tags} to end")
    return ends


def test_tasks_run_side_by_side_and_keep_their_tags(pool: ChildPool[Any]) -> None:
    pool.submit(Misbehaving.process.make_call(), "a")
    pool.submit(Misbehaving.process.make_call(), ("b", 1))
    assert len(pool.idle) == 0
    ends = collect(pool, 2)
    assert ends["a"].end != ends["b", 1].end
    assert len(pool.idle) == 2


def test_a_task_may_choose_its_child(pool: ChildPool[Any]) -> None:
    pids = []
    for place in (1, 0, 1):
        pool.submit(Misbehaving.process.make_call(), "task", place)
        assert pool.idle == [1 - place]
        pids.append(collect(pool, 1)["task"].end)
    assert pids[0] == pids[2] != pids[1]
    assert pool.idle == list(range(pool.size))


def test_a_quick_task_is_not_held_back_by_a_slow_one(pool: ChildPool[Any]) -> None:
    pool.submit(Misbehaving.sleep.make_call(3600), "slow")
    pool.submit(Misbehaving.echo.make_call(1), "quick")
    assert set(collect(pool, 1)) == {"quick"}
    assert pool.tags == ["slow"]


def test_nothing_to_wait_for_returns_at_once(pool: ChildPool[Any]) -> None:
    assert pool.poll(3600) == []


def test_failures_are_results_of_their_own_task(pool: ChildPool[Any]) -> None:
    pool.submit(Misbehaving.segfault.make_call(), "crash")
    pool.submit(Misbehaving.fail.make_call("no"), "fail")
    ends = collect(pool, 2)
    assert isinstance(ends["crash"].end, ChildCrashed)
    assert isinstance(ends["fail"].end, ChildFailed)


def test_a_hanging_task_ends_by_its_timeout_and_its_child_is_replaced(pool: ChildPool[Any]) -> None:
    pool.submit(Misbehaving.loop.make_call(), "hang")
    assert isinstance(collect(pool, 1)["hang"].end, ChildTimeout)
    for tag in range(4):
        pool.submit(Misbehaving.echo.make_call(tag), tag)
        assert collect(pool, 1)[tag].end == tag


def test_time_spent_suspended_does_not_count(
    pool: ChildPool[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = SimpleNamespace(monotonic=time.monotonic)
    monkeypatch.setattr("mallorn.workers.subprocesses.pending_call.time", clock)
    pool.submit(Misbehaving.process.make_call(), "warm")
    collect(pool, 1)
    pool.submit(Misbehaving.wait_for_file.make_call(str(tmp_path / "file")), "task")
    pool.suspend()
    clock.monotonic = lambda: time.monotonic() + 3600
    assert pool.poll(0) == []
    pool.resume()
    (tmp_path / "file").touch()
    assert collect(pool, 1)["task"].end is None


def test_starting_does_not_count_against_a_timeout(pool: ChildPool[Any]) -> None:
    pool.submit(Misbehaving.echo.make_call(1).with_limit(0.001), "task")
    assert "did not start" not in str(collect(pool, 1)["task"].end)


def test_cancel_ends_what_runs_and_leaves_the_pool_usable(pool: ChildPool[Any]) -> None:
    pool.submit(Misbehaving.loop.make_call(), "endless")
    assert pool.cancel() == ["endless"]
    assert len(pool.idle) == 2
    pool.submit(Misbehaving.echo.make_call(1), "next")
    assert collect(pool, 1)["next"].end == 1


def test_suspended_children_resume_where_they_were(pool: ChildPool[Any]) -> None:
    pool.submit(Misbehaving.process.make_call(), "warm")
    pid = collect(pool, 1)["warm"].end
    pool.suspend()
    time.sleep(0.05)
    pool.resume()
    pool.submit(Misbehaving.process.make_call(), "again")
    assert collect(pool, 1)["again"].end == pid


def test_pools_that_share_children_use_each_for_one_task_at_a_time(pool: ChildPool[Any]) -> None:
    other = pool.share()
    assert pool.submit(Misbehaving.process.make_call(), "a")
    assert other.idle == [1]
    assert not other.submit(Misbehaving.process.make_call(), "b", 0), "another pool's task runs there"
    assert other.submit(Misbehaving.process.make_call(), "b")
    assert (pool.tags, other.tags) == (["a"], ["b"])
    assert collect(pool, 1)["a"].end != collect(other, 1)["b"].end


def test_a_pool_that_waits_gets_the_next_child_of_one_that_has_more_than_its_part(
    pool: ChildPool[Any], tmp_path: Path
) -> None:
    other = pool.share()
    for tag in range(2):
        pool.submit(Misbehaving.wait_for_file.make_call(str(tmp_path / str(tag))), tag)
    waits = Thread(target=lambda: other.wait_for_idle(30))
    waits.start()
    wait_for(lambda: bool(pool._children.waiting), "the other pool to wait")
    (tmp_path / "0").touch()
    collect(pool, 1)
    assert pool.idle == [], "it is the other pool's turn"
    waits.join(30)
    assert other.submit(Misbehaving.process.make_call(), "other")
    collect(other, 1)
    assert pool.idle == [0]
    pool.cancel()


def test_children_resume_when_no_pool_suspends_them_any_more(pool: ChildPool[Any]) -> None:
    other = pool.share()
    pool.submit(Misbehaving.process.make_call(), "warm")
    collect(pool, 1)
    for each in (pool, other):
        each.suspend()
    pool.resume()
    assert not pool.submit(Misbehaving.process.make_call(), "early"), "the other pool's program is timed"
    other.resume()
    assert pool.submit(Misbehaving.process.make_call(), "task")
    collect(pool, 1)


def test_a_pool_cancels_only_its_own_tasks(pool: ChildPool[Any]) -> None:
    other = pool.share()
    pool.submit(Misbehaving.loop.make_call(), "endless")
    other.submit(Misbehaving.process.make_call(), "task")
    assert pool.cancel() == ["endless"]
    assert isinstance(collect(other, 1)["task"].end, int)
