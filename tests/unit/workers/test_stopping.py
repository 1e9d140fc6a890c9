"""A worker that is asked to stop does not wait for its children."""

import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.fixtures.waiting import PATIENCE, wait_for
from workers.children.child import Child
from workers.children.pool import ChildPool
from workers.children.shutdown import Stop, Stopping

SLOW = "tests.unit.children.misbehaving"


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stop:
    """A wish of this test's own."""
    wish = Stop()
    monkeypatch.setattr("workers.children.child.STOP", wish)
    return wish


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a group of its own, which ends well when nobody speaks to it any more."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process


def soon(stop: Stop, child: Child) -> threading.Thread:
    """Ask to stop once the child is at work."""

    def ask() -> None:
        try:
            wait_for(lambda: child.ready, "the child to be ready")
        finally:
            stop.ask()

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_a_call_in_progress_ends_as_stopping_and_not_as_a_crash(stop: Stop) -> None:
    with Child(SLOW) as child:
        thread = soon(stop, child)
        with pytest.raises(Stopping):
            child.call("loop", PATIENCE)
        thread.join()
        assert not child.alive


def test_a_suspended_child_is_ended_too(stop: Stop) -> None:
    with Child(SLOW) as child:
        child.call("echo", PATIENCE, value=1)
        child.send("loop")
        child.suspend()
        stop.ask()
        with pytest.raises(Stopping):
            child.receive(PATIENCE)


def test_nothing_starts_any_more(stop: Stop) -> None:
    stop.ask()
    with Child(SLOW) as child, pytest.raises(Stopping):
        child.call("echo", PATIENCE, value=1)


def test_a_pool_does_not_replace_what_was_ended(stop: Stop) -> None:
    with ChildPool(SLOW, 1) as pool:
        pool.submit("loop", {}, PATIENCE, "a")
        stop.ask()
        with pytest.raises(Stopping):
            pool.poll(PATIENCE)


def test_a_child_that_starts_while_the_wish_is_spoken_is_ended(
    stop: Stop, leader: subprocess.Popen[bytes]
) -> None:
    stop.ask()
    stop.enter(leader.pid)
    assert leader.wait(PATIENCE) == -signal.SIGKILL


def test_what_was_reaped_is_left_alone(stop: Stop, leader: subprocess.Popen[bytes]) -> None:
    stop.enter(leader.pid)
    stop.leave(leader.pid)
    stop.ask()
    leader.communicate(timeout=PATIENCE)
    assert leader.returncode == 0
