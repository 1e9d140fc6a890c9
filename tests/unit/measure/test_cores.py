"""Who times has the cores of the host alone, across processes, and never longer than it lives."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mallorn.workers.host.host_lock import CoreLock
from tests.fixtures.waiting import PATIENCE, wait_for

HOLDER = """
import sys
from pathlib import Path
from mallorn.workers.host.host_lock import CoreLock
assert CoreLock(Path(sys.argv[1])).lock_exclusively(0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cores.lock"


def test_one_at_a_time_has_them_alone(path: Path) -> None:
    first, second = CoreLock(path), CoreLock(path)
    assert first.lock_exclusively(0)
    assert first.lock_exclusively(0)  # whoever has them may ask again
    assert not second.lock_exclusively(0)
    first.unlock()
    assert second.lock_exclusively(0)


def test_work_is_shared_and_keeps_timing_waiting(path: Path) -> None:
    one, another, timer = CoreLock(path), CoreLock(path), CoreLock(path)
    one.lock_shared()
    another.lock_shared()
    assert not timer.lock_exclusively(0)
    one.unlock()
    another.unlock()
    assert timer.lock_exclusively(0)


def test_who_waits_to_time_lets_nobody_else_begin_to_share(path: Path) -> None:
    busy, timer, late = CoreLock(path), CoreLock(path), CoreLock(path)
    began = threading.Event()

    def share() -> None:
        late.lock_shared()
        began.set()

    busy.lock_shared()
    waiting = threading.Thread(target=lambda: timer.lock_exclusively(PATIENCE))
    waiting.start()
    wait_for(lambda: not _is_open(path), "the timer at the gate")
    sharing = threading.Thread(target=share)
    sharing.start()
    busy.unlock()
    waiting.join()  # the timer goes first, however often others ask
    assert not began.is_set()
    timer.unlock()
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
        assert not CoreLock(path).lock_exclusively(0)
        process.kill()
        process.wait()
        assert CoreLock(path).lock_exclusively(0)
