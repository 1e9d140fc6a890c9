"""What the kernel counts for each thread tells whether a moment's processors were ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mallorn.workers.device.prepare_session import raise_priority
from mallorn.workers.host.load_meter import ContentionReading


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A made-up /proc of two threads, one of them running, beside two threads of others."""
    for thread, state in ((7, "R"), (8, "S")):
        folder = tmp_path / "self" / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{thread} (a (b) c) {state} 1 2 3")
        (folder / "schedstat").write_text("1000000000 500000000 7\n")
    (tmp_path / "loadavg").write_text("0.1 0.2 0.3 3/400 12345\n")
    return tmp_path


def wait(proc: Path, thread: int, seconds: float) -> None:
    (proc / "self" / "task" / str(thread) / "schedstat").write_text(
        f"2000000000 {int(5e8 + seconds * 1e9)} 8"
    )


def test_the_thread_that_waited_longest_counts(proc: Path) -> None:
    before = ContentionReading(0.0, ContentionReading.read_counters(proc).waited_sec, 0)
    wait(proc, 7, 0.1)
    wait(proc, 8, 0.3)
    after = ContentionReading(1.0, ContentionReading.read_counters(proc).waited_sec, 0)
    assert after.waited_since(before) == pytest.approx(0.3)


def test_others_that_want_a_processor_are_counted_and_we_are_not(proc: Path) -> None:
    assert ContentionReading.read_counters(proc).rivals == 2


def test_a_kernel_that_does_not_count_is_not_taken_for_a_quiet_host(proc: Path) -> None:
    for counters in proc.glob("self/task/*/schedstat"):
        counters.unlink()
    assert ContentionReading.read_counters(proc).waited_since(ContentionReading.read_counters(proc)) is None


def test_a_thread_that_shares_its_processor_waits_for_half_of_the_time() -> None:
    """On the real kernel: two processes on one processor."""
    program = (
        "import os, sys, time\n"
        "from mallorn.workers.host.load_meter import ContentionReading\n"
        f"os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "before, until = ContentionReading.read_counters(), time.monotonic() + 0.5\n"
        "while time.monotonic() < until: pass\n"
        "print(ContentionReading.read_counters().waited_since(before))\n"
    )
    with (
        subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as one,
        subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as other,
    ):
        both = one, other
        assert all(each.stdout and each.stdout.readline() for each in both)
        for each in both:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        shares = [float(each.communicate()[0]) for each in both]
    assert all(share > 0.1 for share in shares)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What a process asked of a kernel that grants everything, without quotas."""
    told: list[object] = []
    monkeypatch.setattr(os, "setpriority", lambda *args: told.append(args))
    monkeypatch.setattr(os, "sched_setscheduler", lambda _pid, policy, _param: told.append(policy))
    monkeypatch.setattr("mallorn.workers.device.prepare_session.cpu_quota", lambda: None)
    return told


@pytest.fixture
def real_time(tmp_path: Path) -> Path:
    """The kernel's limit of real-time processes, as it is by default."""
    (tmp_path / "limit").write_text("950000\n")
    return tmp_path / "limit"


def refuse(*_args: object) -> None:
    raise PermissionError


@pytest.mark.usefixtures("asked")
def test_a_process_that_may_not_goes_on_at_its_rank(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, real_time: Path
) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(os, "setpriority", refuse)
    assert not raise_priority(tmp_path / "autogroup", real_time)
    assert not (tmp_path / "autogroup").exists()


def test_a_process_that_may_has_whoever_wakes_up_wait(
    asked: list[object], tmp_path: Path, real_time: Path
) -> None:
    assert raise_priority(tmp_path / "autogroup", real_time)
    assert asked == [os.SCHED_RR]


def test_where_nothing_would_be_left_for_others_it_goes_first_within_its_group_and_with_it(
    asked: list[object], tmp_path: Path, real_time: Path
) -> None:
    real_time.write_text("-1\n")
    assert raise_priority(tmp_path / "autogroup", real_time)
    assert asked == [(os.PRIO_PROCESS, 0, -20)]
    assert (tmp_path / "autogroup").read_text() == "-20"


def test_a_quota_which_real_time_would_pass_by_is_kept(
    asked: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, real_time: Path
) -> None:
    monkeypatch.setattr("mallorn.workers.device.prepare_session.cpu_quota", lambda: 1.5)
    assert raise_priority(tmp_path / "autogroup", real_time)
    assert asked == [(os.PRIO_PROCESS, 0, -20)]
