"""The supervisor on small real processes."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mallorn.stack.supervised_process import READY_FILE_VARIABLE, ChildSpec, SupervisedChild, trim_log
from mallorn.stack.supervisor import PartFailed, RestartPatience, Supervisor
from tests.fixtures.processes import UNTIL_KILLED, is_running, wait_until_gone
from tests.fixtures.waiting import PATIENCE, wait_for

IMPATIENT = RestartPatience(
    first_delay_sec=0.01, longest_delay_sec=0.02, failures_in_a_row=3, grace_sec=PATIENCE
)
TOUCH_READY = f"import os, pathlib; pathlib.Path(os.environ[{READY_FILE_VARIABLE!r}]).touch()"


def script(folder: Path, name: str, code: str, needs: tuple[str, ...] = ()) -> ChildSpec:
    """A child that runs `code`, then says it is ready and stays."""
    ready = folder / f"{name}.ready"
    program = f"{code}\n{TOUCH_READY}\n{UNTIL_KILLED}"
    return ChildSpec(name, (sys.executable, "-c", program), ready.exists, needs=needs, ready_file=ready)


def pid_in(path: Path) -> int:
    return int(wait_for(lambda: path.exists() and path.read_text(), f"a number in {path.name}"))


def test_a_child_starts_only_after_what_it_needs_is_ready(tmp_path: Path) -> None:
    ready: list[str] = []
    first = script(tmp_path, "first", "import time; time.sleep(0.3)")
    second = script(
        tmp_path, "second", f"assert __import__('os').path.exists({str(first.ready_file)!r})", ("first",)
    )
    supervisor = Supervisor([second, first], tmp_path, ready.append, patience=IMPATIENT)
    with supervisor.run_children():
        assert supervisor.start_children()
    assert ready == ["first", "second"]


def test_a_stop_helps_children_to_end_until_they_have(tmp_path: Path) -> None:
    told = tmp_path / "told"
    waits = f"""
import os, signal, time
def end(*_):
    while not os.path.exists({str(told)!r}): time.sleep(0.01)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
"""
    patient = RestartPatience(grace_sec=PATIENCE)
    part = script(tmp_path, "part", waits)
    supervisor = Supervisor([part], tmp_path, patience=patient, while_ending=told.touch)
    with supervisor.run_children():
        assert supervisor.start_children()
    assert told.exists()


def test_a_killed_child_is_started_again(tmp_path: Path) -> None:
    pids, restarts = tmp_path / "pids", []
    note = f"import os; print(os.getpid(), file=open({str(pids)!r}, 'a'), flush=True)"
    supervisor = Supervisor(
        [script(tmp_path, "part", note)],
        tmp_path,
        on_restart=lambda name, how: restarts.append((name, how)),
        patience=IMPATIENT,
    )
    with supervisor.run_children():
        supervisor.start_children()
        os.kill(int(pids.read_text()), signal.SIGKILL)
        supervisor.watch_children(lambda: len(pids.read_text().split()) == 2)
    assert restarts == [("part", "was killed by SIGKILL")]


def test_a_child_that_keeps_failing_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    failing = script(tmp_path, "coordinator", "raise SystemExit('the disk is on fire')")
    supervisor = Supervisor([failing], tmp_path, patience=IMPATIENT)
    with (
        supervisor.run_children(),
        pytest.raises(PartFailed, match=r"(?s)`coordinator` .* 3 times .*the disk is on fire"),
    ):
        supervisor.start_children()


def test_a_child_that_never_gets_ready_is_named(tmp_path: Path) -> None:
    spec = ChildSpec("deaf", (sys.executable, "-c", UNTIL_KILLED), lambda: False, start_timeout_sec=0.2)
    supervisor = Supervisor([spec], tmp_path, patience=IMPATIENT)
    with supervisor.run_children(), pytest.raises(PartFailed, match="`deaf` was not ready"):
        supervisor.start_children()


def test_a_child_that_is_not_essential_is_given_up_alone(tmp_path: Path) -> None:
    given_up: list[tuple[str, str]] = []
    failing = replace(script(tmp_path, "extra", "raise SystemExit('no such target')"), essential=False)
    part = script(tmp_path, "part", "")
    supervisor = Supervisor(
        [part], tmp_path, on_give_up=lambda *said: given_up.append(said), patience=IMPATIENT
    )
    with supervisor.run_children():
        supervisor.start_children()
        supervisor.add(failing)
        supervisor.watch_children(lambda: bool(given_up))
        supervisor.watch_children(seen_stable(part))  # the others go on
    [(name, how)] = given_up
    assert name == "extra"
    assert "3 times in a row" in how
    assert str(tmp_path / "extra.log") in how


def test_a_child_can_come_later_and_go_again(tmp_path: Path) -> None:
    ready: list[str] = []
    pid_file = tmp_path / "pid"
    note = f"import os; open({str(pid_file)!r}, 'w').write(str(os.getpid()))"
    late = script(tmp_path, "late", note, ("part",))
    supervisor = Supervisor([script(tmp_path, "part", "")], tmp_path, ready.append, patience=IMPATIENT)
    with supervisor.run_children():
        supervisor.start_children()
        for _ in range(2):
            supervisor.add(late)
            supervisor.watch_children(lambda: "late" in ready)
            pid = pid_in(pid_file)
            supervisor.remove("late")
            assert not is_running(pid)
            ready.remove("late")


def test_failures_long_apart_do_not_add_up(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    note = f"import os; print(os.getpid(), file=open({str(pids)!r}, 'a'), flush=True)"
    forgiving = replace(IMPATIENT, failures_in_a_row=2, stable_sec=0.0)
    part = script(tmp_path, "part", note)
    supervisor = Supervisor([part], tmp_path, patience=forgiving)
    with supervisor.run_children():
        supervisor.start_children()
        for count in (2, 3, 4):
            supervisor.watch_children(seen_stable(part))
            os.kill(int(pids.read_text().split()[-1]), signal.SIGKILL)
            supervisor.watch_children(lambda count=count: len(pids.read_text().split()) == count)


def seen_stable(spec: ChildSpec) -> Callable[[], bool]:
    """Asked after each look at the parts: true at the third look at a part that was ready before."""
    looks = 0

    def enough() -> bool:
        nonlocal looks
        looks += spec.ready()
        return looks > 2

    return enough


def test_stopping_ends_what_a_child_started_in_its_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    fork = f"""
import subprocess
open({str(pid_file)!r}, "w").write(str(subprocess.Popen(["sleep", "3600"]).pid))"""
    supervisor = Supervisor([script(tmp_path, "part", fork)], tmp_path, patience=IMPATIENT)
    with supervisor.run_children():
        supervisor.start_children()
        assert is_running(pid_in(pid_file))
    wait_until_gone(pid_in(pid_file))


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    stubborn = f"""
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open({str(pid_file)!r}, "w").write(str(os.getpid()))"""
    hasty = replace(IMPATIENT, grace_sec=0.1)
    supervisor = Supervisor([script(tmp_path, "part", stubborn)], tmp_path, patience=hasty)
    with supervisor.run_children():
        supervisor.start_children()
    assert not is_running(pid_in(pid_file))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_watch_and_handlers_come_back(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    supervisor = Supervisor([script(tmp_path, "part", "")], tmp_path, patience=IMPATIENT)
    with supervisor.run_children():
        supervisor.start_children()
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        supervisor.watch_children()
    assert supervisor.stopping
    assert signal.getsignal(number) is before


def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = f"""
from pathlib import Path
from mallorn.stack.supervised_process import SupervisedChild, ChildSpec
code = "import os; open({str(pid_file)!r}, 'w').write(str(os.getpid())); {UNTIL_KILLED}"
spec = ChildSpec("part", ({sys.executable!r}, "-c", code), lambda: True)
SupervisedChild(spec, Path({str(tmp_path / "log")!r})).start()
{UNTIL_KILLED}
"""
    outer = SupervisedChild(
        ChildSpec("outer", (sys.executable, "-c", program), lambda: True), tmp_path / "outer.log"
    )
    outer.start()
    inner = pid_in(pid_file)
    assert is_running(inner)
    assert outer.pid is not None
    os.kill(outer.pid, signal.SIGKILL)
    assert outer.wait_for_exit(PATIENCE)
    wait_until_gone(inner)


def test_the_log_of_the_last_run_is_kept_aside(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("from the last run\n")
    child = SupervisedChild(
        ChildSpec("part", (sys.executable, "-c", "print('from this run')"), lambda: True), log
    )
    child.start()
    assert child.wait_for_exit(PATIENCE)
    assert child.last_lines() == ["from this run"]
    assert (tmp_path / "part.log.1").read_text() == "from the last run\n"


def test_a_log_that_outgrew_its_limit_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mallorn.stack.supervisor.trim_log", partial(trim_log, limit_bytes=10))
    logs = [tmp_path / f"{name}.log" for name in ("part", "executions", "up")]
    stack = Supervisor([script(tmp_path, "part", "")], tmp_path, patience=IMPATIENT)
    for log in logs:
        log.write_text("more than ten bytes")
    with stack.run_children():
        stack.start_children()
    for log in logs[1:]:
        assert log.read_text() == "", "whoever writes it"
        assert log.with_suffix(".log.1").read_text() == " ten bytes"


def test_only_the_newest_bytes_of_a_log_are_kept_aside(tmp_path: Path) -> None:
    """A sparse file of any size costs no more of the disk than its newest bytes."""
    log, aside = tmp_path / "part.log", tmp_path / "part.log.1"
    with log.open("wb") as file:
        file.seek(1 << 34)
        file.write(b"newest")
    trim_log(log, 10)
    assert (log.stat().st_size, aside.read_bytes()) == (0, b"\0" * 4 + b"newest")


def test_no_link_in_place_of_a_log_is_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("more than ten bytes")
    (tmp_path / "linked.log").symlink_to(secret)
    (tmp_path / "part.log").write_text("more than ten bytes")
    (tmp_path / "part.log.1").symlink_to(secret)
    for log in tmp_path.glob("*.log"):
        trim_log(log, 10)
    assert secret.read_text() == "more than ten bytes"
    assert (tmp_path / "part.log.1").read_text() == " ten bytes"
