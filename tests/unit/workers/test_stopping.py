"""A worker that is asked to stop does not wait for its children."""

import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest

from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.process_pool import ChildPool
from mallorn.workers.subprocesses.shutdown import Shutdown, ShutdownRequested
from tests.fixtures.waiting import PATIENCE, wait_for
from tests.unit.children.faces import Misbehaving


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Shutdown:
    """A wish of this test's own."""
    wish = Shutdown()
    monkeypatch.setattr("mallorn.workers.subprocesses.child_process.STOP", wish)
    return wish


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a group of its own, which ends well when nobody speaks to it any more."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process


def soon(stop: Shutdown, child: Child) -> threading.Thread:
    """Ask to stop once the child is at work."""

    def ask() -> None:
        try:
            wait_for(lambda: child.ready, "the child to be ready")
        finally:
            stop.request_stop()

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_a_call_in_progress_ends_as_stopping_and_not_as_a_crash(stop: Shutdown) -> None:
    with Misbehaving() as child:
        thread = soon(stop, child)
        with pytest.raises(ShutdownRequested):
            child.wait_for_file("/nowhere")
        thread.join()
        assert not child.alive


def test_a_suspended_child_is_ended_too(stop: Shutdown) -> None:
    with Misbehaving() as child:
        child.echo(1)
        pending = child.wait_for_file.begin("/nowhere")
        child.suspend()
        stop.request_stop()
        with pytest.raises(ShutdownRequested):
            pending.wait()


def test_nothing_starts_any_more(stop: Shutdown) -> None:
    stop.request_stop()
    with Misbehaving() as child, pytest.raises(ShutdownRequested):
        child.echo(1)


def test_a_pool_does_not_replace_what_was_ended(stop: Shutdown) -> None:
    with ChildPool(Misbehaving, 1) as pool:
        pool.submit(Misbehaving.wait_for_file.make_call("/nowhere"), "a")
        stop.request_stop()
        with pytest.raises(ShutdownRequested):
            pool.poll(PATIENCE)


def test_a_child_that_starts_while_the_wish_is_spoken_is_ended(
    stop: Shutdown, leader: subprocess.Popen[bytes]
) -> None:
    stop.request_stop()
    stop.register_child(leader.pid)
    assert leader.wait(PATIENCE) == -signal.SIGKILL


def test_what_was_reaped_is_left_alone(stop: Shutdown, leader: subprocess.Popen[bytes]) -> None:
    stop.register_child(leader.pid)
    stop.unregister_child(leader.pid)
    stop.request_stop()
    leader.communicate(timeout=PATIENCE)
    assert leader.returncode == 0
