"""Who times has the cores of the host alone, across processes, and never longer than it lives."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.fixtures.waiting import PATIENCE, wait_for
from workers.host.core_lock import CoreLock

HOLDER = """
import sys
from pathlib import Path
from workers.host.core_lock import CoreLock
assert CoreLock(Path(sys.argv[1])).take(0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cores.lock"


def test_one_at_a_time_has_them_alone(path: Path) -> None:
    first, second = CoreLock(path), CoreLock(path)
    assert first.take(0)
    assert first.take(0)  # whoever has them may ask again
    assert not second.take(0)
    first.give_back()
    assert second.take(0)


def test_work_is_shared_and_keeps_timing_waiting(path: Path) -> None:
    one, another, timer = CoreLock(path), CoreLock(path), CoreLock(path)
    one.share()
    another.share()
    assert not timer.take(0)
    one.give_back()
    another.give_back()
    assert timer.take(0)


def test_who_waits_to_time_lets_nobody_else_begin_to_share(path: Path) -> None:
    busy, timer, late = CoreLock(path), CoreLock(path), CoreLock(path)
    began = threading.Event()

    def share() -> None:
        late.share()
        began.set()

    busy.share()
    waiting = threading.Thread(target=lambda: timer.take(PATIENCE))
    waiting.start()
    wait_for(lambda: not _is_open(path), "the timer at the gate")
    sharing = threading.Thread(target=share)
    sharing.start()
    busy.give_back()
    waiting.join()  # the timer goes first, however often others ask
    assert not began.is_set()
    timer.give_back()
    sharing.join()
    assert began.is_set()


def _is_open(path: Path) -> bool:
    """Whether the gate is open."""
    with path.with_suffix(".gate").open() as gate:
        try:
            fcntl.flock(gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_a_killed_process_keeps_nothing(path: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert not CoreLock(path).take(0)
        process.kill()
        process.wait()
        assert CoreLock(path).take(0)
