"""What a process had of the processors is what the kernel says of its threads."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mallorn.workers.subprocesses.child_process import ProcessorShare
from mallorn.workers.subprocesses.shutdown import Shutdown, used_cpu_sec


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for thread, counted in ((7, "1000000000 250000000 3"), (8, "500000000 250000000 1")):
        folder = tmp_path / "7" / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(f"{counted}\n")
    return tmp_path


def test_all_threads_count(proc: Path) -> None:
    assert ProcessorShare.of(7, proc) == ProcessorShare(ran_sec=1.5, waited_sec=0.5)


@pytest.mark.parametrize("pid", [None, 9])
def test_a_process_that_is_gone_had_nothing(proc: Path, pid: int | None) -> None:
    assert ProcessorShare.of(pid, proc) == ProcessorShare()


def test_more_waiting_than_running_is_a_small_share() -> None:
    before = ProcessorShare(1.0, 5.0)
    assert ProcessorShare(1.2, 5.3).waited_more_than_ran(before)
    assert not ProcessorShare(1.3, 5.2).waited_more_than_ran(before)
    assert not before.waited_more_than_ran(before)


def test_a_process_has_the_time_of_those_that_it_waited_for(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    told = ["S", *["0"] * 10, "100", "50", "30", "20", "0"]
    (tmp_path / "7" / "stat").write_text(f"7 (a (strange) name) {' '.join(told)}")
    assert used_cpu_sec(7, tmp_path) == 200 / os.sysconf("SC_CLK_TCK")
    assert used_cpu_sec(8, tmp_path) == 0.0


def test_a_worker_counts_its_children_also_when_they_are_gone() -> None:
    stop = Shutdown()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    try:
        stop.register_child(child.pid)
        while stop.children_cpu_sec() < 0.05:
            time.sleep(0.01)
    finally:
        child.kill()
        before = stop.children_cpu_sec()
        stop.unregister_child(child.pid)
        child.wait()
    assert stop.children_cpu_sec() >= before >= 0.05
