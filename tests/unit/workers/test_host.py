"""Who works on a host: many together, or one alone, and nobody waits for ever."""

import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from mallorn.workers.host.host_lock import LOCK_NAME, CoreLock, HostLock
from tests.fixtures.waiting import wait_for

LONG_SEC = 300.0


@pytest.fixture
def host(tmp_path: Path) -> HostLock:
    return HostLock(tmp_path)


class Waiting(Thread):
    """Somebody who wants to be alone, in a thread of its own."""

    def __init__(self, host: HostLock) -> None:
        super().__init__(daemon=True)
        self._host = host
        self.got: bool | None = None
        self.may_leave = Event()
        self.start()

    def run(self) -> None:
        with self._host.hold_exclusive() as held:
            self.got = held
            self.may_leave.wait(LONG_SEC)

    def leave(self) -> None:
        self.may_leave.set()
        self.join(LONG_SEC)


def gate_is_closed(host: HostLock) -> bool:
    return not host.is_gate_open()


def test_work_of_many_goes_on_together(host: HostLock) -> None:
    with host.hold_shared(), host.hold_shared():
        assert host.is_gate_open()


def test_nobody_shares_with_one_who_is_alone(tmp_path: Path) -> None:
    host = HostLock(tmp_path, shared_patience_sec=0.0)
    with host.hold_exclusive() as held:
        assert held
        assert gate_is_closed(host)
    assert host.is_gate_open()


def test_who_wants_to_be_alone_waits_for_work_to_end_and_lets_none_begin(host: HostLock) -> None:
    with host.hold_shared():
        waiting = Waiting(host)
        wait_for(lambda: gate_is_closed(host), "the gate to close")
        assert waiting.got is None
    wait_for(lambda: waiting.got, "the host to be free")
    waiting.leave()
    assert host.is_gate_open()


def test_long_work_makes_way_and_goes_on_afterwards(host: HostLock) -> None:
    seen: list[str] = []
    with host.hold_shared() as turn:
        turn.pause_if_requested(lambda: seen.append("pause"), lambda: seen.append("go on"))
        assert seen == []
        waiting = Waiting(host)
        wait_for(lambda: gate_is_closed(host), "the gate to close")

        def pause() -> None:
            seen.append("pause")
            Thread(target=lambda: wait_for(lambda: waiting.got, "its turn") and waiting.leave()).start()

        turn.pause_if_requested(pause, lambda: seen.append("go on"))
    assert (seen, waiting.got) == (["pause", "go on"], True)


def test_who_cannot_be_alone_in_time_goes_on_and_knows_it(tmp_path: Path) -> None:
    with (
        HostLock(tmp_path).hold_shared(),
        HostLock(tmp_path, alone_patience_sec=0.0).hold_exclusive() as held,
    ):
        assert not held


def test_who_is_alone_keeps_devices_from_timing_and_imports_from_computing(tmp_path: Path) -> None:
    cores = CoreLock(tmp_path / LOCK_NAME)
    with HostLock(tmp_path).hold_exclusive() as held:
        assert held
        assert not cores.lock_exclusively(0)
    assert cores.lock_exclusively(0)
    with HostLock(tmp_path, alone_patience_sec=0.0).hold_exclusive() as held:
        assert not held


def test_two_take_turns_in_being_alone(tmp_path: Path) -> None:
    hasty = HostLock(tmp_path, alone_patience_sec=0.0)
    with hasty.hold_exclusive() as first, hasty.hold_exclusive() as second:
        assert (first, second) == (True, False)
    with hasty.hold_exclusive() as held:
        assert held


def test_work_waits_for_one_who_is_alone_only_so_long(tmp_path: Path) -> None:
    with HostLock(tmp_path).hold_exclusive(), HostLock(tmp_path, shared_patience_sec=0.0).hold_shared():
        pass


def test_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    holding = (
        "from pathlib import Path; import sys, time; from mallorn.workers.host.host_lock import HostLock\n"
        "with HostLock(Path(sys.argv[1])).hold_exclusive():\n    print('held', flush=True); time.sleep(900)"
    )
    command = [sys.executable, "-c", holding, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert gate_is_closed(HostLock(tmp_path))
        process.kill()
    with HostLock(tmp_path, alone_patience_sec=0.0).hold_exclusive() as held:
        assert held
