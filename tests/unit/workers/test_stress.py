"""Programs beside a timing: there while it lasts, gone afterwards."""

import subprocess
import sys

import psutil
import pytest

from mallorn.workers.host.background_load import run_load_programs
from tests.fixtures.waiting import wait_for


@pytest.fixture
def earlier() -> set[int]:
    """The children that other tests have left; nobody may have waited for one that has ended."""
    return {child.pid for child in psutil.Process().children()}


def stressors(earlier: set[int]) -> list[psutil.Process]:
    mine = [child for child in psutil.Process().children() if child.pid not in earlier]
    return [each for each in mine if "mallorn.workers.host.background_load_child" in " ".join(each.cmdline())]


def worked_sec(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def test_they_work_meanwhile_and_are_gone_afterwards(earlier: set[int]) -> None:
    with run_load_programs(2):
        found = stressors(earlier)
        assert len(found) == 2
        before = [worked_sec(each) for each in found]
        wait_for(lambda: all(worked_sec(e) > b for e, b in zip(found, before, strict=True)), "their work")
    assert stressors(earlier) == []
    assert not any(map(psutil.pid_exists, (each.pid for each in found)))


def test_they_are_gone_when_the_timing_fails(earlier: set[int]) -> None:
    with pytest.raises(ZeroDivisionError), run_load_programs(1):
        len(stressors(earlier)) / 0
    assert stressors(earlier) == []


def test_none_are_started_for_an_idle_host(earlier: set[int]) -> None:
    with run_load_programs(0):
        assert stressors(earlier) == []


def test_the_kernel_ends_them_with_us() -> None:
    script = """
import os, psutil
from mallorn.workers.host.background_load import run_load_programs
with run_load_programs(1):
    print(psutil.Process().children()[0].pid, flush=True)
    os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    wait_for(lambda: ended(int(done.stdout)), "the kernel to end a program")


def ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
