"""A child that gives way never computes while somebody times, and always goes on afterwards."""

from pathlib import Path

import pytest

from mallorn.core.errors import HostFault
from mallorn.workers.host.host_lock import CoreLock
from mallorn.workers.host.pause_while_timing import paused_while_timing
from tests.fixtures.waiting import PATIENCE, wait_for


class Computing:
    """A child that knows whether it runs."""

    def __init__(self) -> None:
        self.runs = True
        self.turns = 0

    def suspend(self) -> None:
        self.runs = False

    def resume(self) -> None:
        self.runs = True
        self.turns += 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cores.lock"


def test_it_stands_still_while_somebody_times_and_goes_on_afterwards(path: Path) -> None:
    child, timer = Computing(), CoreLock(path)
    with paused_while_timing(child, CoreLock(path), slice_sec=0.01):
        wait_for(lambda: child.turns, "its first slice")
        for _ in range(5):
            assert timer.lock_exclusively(PATIENCE)
            before = child.turns
            assert not child.runs
            assert child.turns == before
            timer.unlock()
            wait_for(lambda before=before: child.turns > before, "its next slice")


def test_when_its_work_is_over_nobody_waits_for_it(path: Path) -> None:
    child = Computing()
    with paused_while_timing(child, CoreLock(path), slice_sec=PATIENCE):
        wait_for(lambda: child.runs and child.turns, "its slice")
    assert CoreLock(path).lock_exclusively(PATIENCE)
    assert child.runs


def test_a_lock_that_is_closed_is_said_before_the_child_is_stopped(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")
    child = Computing()
    with pytest.raises(HostFault), paused_while_timing(child, CoreLock(path)):
        pass
    assert child.runs


@pytest.mark.parametrize("error", [HostFault("closed"), OSError(24, "Too many open files")])
def test_a_lock_that_fails_on_the_way_leaves_the_child_running(
    path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, cores = Computing(), CoreLock(path)

    def fail() -> None:
        assert not child.runs
        raise error

    monkeypatch.setattr(cores, "lock_shared", fail)
    with paused_while_timing(child, cores):
        wait_for(lambda: child.turns, "the child to go on")
        assert child.runs


def test_a_user_who_keeps_the_lock_holds_up_no_import_for_ever(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child, other = Computing(), CoreLock(path)
    assert other.lock_exclusively(0)
    with paused_while_timing(child, CoreLock(path), slice_sec=0.01, patience_sec=0.05):
        wait_for(lambda: child.runs and caplog.text, "the child to go on")
        assert "goes on after 0.05 s though a process keeps the cores" in caplog.text
        before = child.turns
        other.unlock()
        wait_for(lambda: child.turns > before, "its next slice")
