"""A worker that is asked to stop does not wait for its children."""

import signal
import subprocess
import sys
import threading

import pytest

from workers.children.child import Child
from workers.children.pool import ChildPool
from workers.stopping import Stop, Stopping

SLOW = "tests.unit.children.misbehaving"


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stop:
    """A wish of this test's own."""
    wish = Stop()
    monkeypatch.setattr("workers.children.child.STOP", wish)
    return wish


def soon(stop: Stop, child: Child) -> threading.Thread:
    """Ask to stop once the child is at work."""

    def ask() -> None:
        while not child.ready:
            threading.Event().wait(0.01)
        stop.ask()

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_a_call_in_progress_ends_as_stopping_and_not_as_a_crash(stop: Stop) -> None:
    with Child(SLOW) as child:
        thread = soon(stop, child)
        with pytest.raises(Stopping):
            child.call("loop", 120)
        thread.join()
        assert not child.alive


def test_a_suspended_child_is_ended_too(stop: Stop) -> None:
    with Child(SLOW) as child:
        child.call("echo", 60, value=1)
        child.send("loop")
        child.suspend()
        stop.ask()
        with pytest.raises(Stopping):
            child.receive(120)


def test_nothing_starts_any_more(stop: Stop) -> None:
    stop.ask()
    with Child(SLOW) as child, pytest.raises(Stopping):
        child.call("echo", 60, value=1)


def test_a_pool_does_not_replace_what_was_ended(stop: Stop) -> None:
    with ChildPool(SLOW, 1) as pool:
        pool.submit("loop", {}, 120, "a")
        stop.ask()
        with pytest.raises(Stopping):
            pool.poll(60)


def test_a_child_that_starts_while_the_wish_is_spoken_is_ended(stop: Stop) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    stop.ask()
    stop.enter(process.pid)
    assert process.wait(30) == -signal.SIGKILL


def test_what_was_reaped_is_left_alone(stop: Stop) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    stop.enter(process.pid)
    stop.leave(process.pid)
    stop.ask()
    assert process.poll() is None
    process.kill()
    process.wait()
