"""Code in a session changes neither its device, nor the device's log, nor a later session's times."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mallorn.core.errors import MallornError
from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.fleet import DeviceInfo
from mallorn.workers.interfaces.device_runner import LibraryRun, Runner
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.measure.tracked_devices import Fleet
from mallorn.workers.sandbox.sandbox import WHOLE
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support
from tests.fixtures.fleet import Subject, TestFleet
from tests.fixtures.waiting import PATIENCE

ARGS = Arguments((Tensor("TENSOR", "float32", (64, 64)),) * 3)
EVALUATOR = EvaluatorOptions(number=1, repeat=1, min_repeat_ms=0)
needs_sandbox = pytest.mark.skipif(
    probe_sandbox_support("best-effort") != WHOLE, reason="no whole sandbox here"
)
needs_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU only")

#: A device whose sessions do what the key of a candidate names, as a candidate's native code could.
HOSTILE = """
import functools, os, signal, sys, time
from pathlib import Path
from mallorn.workers.device import serve_device

def leave_a_process():
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    if os.fork() == 0:
        os.setsid()
        if (pid := os.fork()) == 0:
            began = time.monotonic()
            while os.getppid() != 1 and time.monotonic() - began < 60:  # the device is its parent soon
                pass
            os._exit(0)
        Path({left!r}).write_text(str(pid))
        os._exit(0)
    os.wait()

def write_the_log():
    try:
        os.open({log!r}, os.O_WRONLY)
    except PermissionError:
        os.write(1, b"the log is closed")

ACTS = {{
    "move": lambda: os.sched_setaffinity(os.getppid(), {{max(os.sched_getaffinity(0))}}),
    "slow": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 5),
    "leave": leave_a_process,
    "print": lambda: os.write(2, b"\\x1b]0;title\\x07 password: "),
    "flood": lambda: [os.write(1, b"x" * 1000) for _ in range(100)],
    "deaf": lambda: signal.signal(signal.SIGALRM, signal.SIG_IGN),
    "log": write_the_log,
}}
prepare = serve_device.set_runtime_environment
def prepare_and_plant(target):
    prepare(target)
    from mallorn.workers.device.session_channel import DeviceLink
    begin = DeviceLink.begin_candidate
    def begin_and_act(self, key, deadline_sec):
        begin(self, key, deadline_sec)
        try:
            ACTS.get(key, lambda: None)()
        except ConnectionError:
            pass
    DeviceLink.begin_candidate = begin_and_act
serve_device.set_runtime_environment = prepare_and_plant
serve_device.serve_device = functools.partial(serve_device.serve_device, sandbox={sandbox!r})
"""

# Its sessions get no more of Landlock than this version has; the kernel's answer is made up.
OLD_KERNEL = """
from mallorn.workers.sandbox import landlock
landlock.version = lambda: {version}
"""

Start = Callable[..., psutil.Process]


@pytest.fixture
def start(lone_tracker: TestFleet, local_target: Target) -> Start:
    def start(sandbox: str = "off", kernel: str = "") -> psutil.Process:
        before = kernel + HOSTILE.format(
            log=str(lone_tracker.log),
            left=str(lone_tracker.folder / "left"),
            sandbox=sandbox,
        )
        part = lone_tracker.start_device(local_target, before=before)
        lone_tracker.wait_free(local_target)
        return psutil.Process(part.process.pid)

    return start


@pytest.fixture
def run(
    lone_tracker: TestFleet, local_target: Target, subject: Subject, runner: Runner
) -> Callable[..., LibraryRun]:
    def run(key: str, hazard: str = "double", deadline_sec: float = 60) -> LibraryRun:
        where = lone_tracker.address, local_target.text
        runner.take_device(*where)
        call = Runner.time_candidate.make_call(
            *where, str(subject.harmful(hazard)), ARGS, EVALUATOR, "fixed", key, deadline_sec, 0.0
        )
        return runner.ask(call.with_limit(2 * PATIENCE))

    return run


def end_session(fleet: TestFleet, target: Target, runner: Runner) -> DeviceInfo:
    """End the session; return what the device says afterwards."""
    runner.release_devices()
    fleet.wait_free(target)
    return Fleet(fleet.settings).find_device(target).info


@needs_cores
@pytest.mark.parametrize("act", ["move", "slow"])
def test_what_a_session_changed_of_its_device_is_undone_and_its_times_are_called_disturbed(
    lone_tracker: TestFleet,
    local_target: Target,
    start: Start,
    run: Callable[..., LibraryRun],
    runner: Runner,
    act: str,
) -> None:
    device = start()
    before = device.cpu_affinity(), device.nice()
    assert run("tame").outcome is Outcome.OK
    assert end_session(lone_tracker, local_target, runner).disturbed is None
    began_sec = time.time()
    assert run(act).outcome is Outcome.OK
    assert (device.cpu_affinity(), device.nice()) != before
    interval = end_session(lone_tracker, local_target, runner).disturbed
    assert interval is not None
    assert began_sec - 1 <= interval.since <= interval.until <= time.time()
    assert (device.cpu_affinity(), device.nice()) == before
    assert run("tame").outcome is Outcome.OK
    [session] = lone_tracker.sessions()
    assert session.cpu_affinity() == before[0]
    assert end_session(lone_tracker, local_target, runner).disturbed == interval


def test_a_process_that_a_session_left_is_ended_before_the_next_session(
    lone_tracker: TestFleet,
    local_target: Target,
    start: Start,
    run: Callable[..., LibraryRun],
    runner: Runner,
) -> None:
    device = start()
    assert run("leave").outcome is Outcome.OK
    left = psutil.Process(int((lone_tracker.folder / "left").read_text()))
    assert left.ppid() == device.pid
    assert end_session(lone_tracker, local_target, runner).disturbed is not None
    assert not left.is_running()


def test_a_session_has_no_terminal_and_what_it_prints_is_escaped_and_bounded(
    lone_tracker: TestFleet,
    local_target: Target,
    start: Start,
    run: Callable[..., LibraryRun],
    runner: Runner,
    capfd: pytest.CaptureFixture[str],
) -> None:
    start()
    assert run("print").outcome is Outcome.OK
    [session] = lone_tracker.sessions()
    files = [os.readlink(f"/proc/{session.pid}/fd/{number}") for number in range(3)]
    assert files[0] == "/dev/null"
    assert all(file.startswith("socket:") for file in files[1:])
    assert os.stat(f"/proc/{session.pid}/fd/1").st_ino != os.fstat(1).st_ino
    assert run("flood").outcome is Outcome.OK
    end_session(lone_tracker, local_target, runner)
    told = capfd.readouterr().err
    assert "\x1b" not in told
    assert r"\x1b]0;title\x07 password: " in told
    assert told.count("x" * 1000) < 100
    assert "a session printed more than 64 KiB" in told


def test_a_deadline_ends_a_session_that_ignores_signals(start: Start, run: Callable[..., LibraryRun]) -> None:
    start()
    late = run("deaf", "run_loop", 1)
    assert late.outcome is Outcome.RUN_TIMEOUT


@needs_sandbox
def test_a_session_cannot_open_the_log_and_cannot_raise_its_priority_again(
    lone_tracker: TestFleet,
    local_target: Target,
    start: Start,
    run: Callable[..., LibraryRun],
    runner: Runner,
    capfd: pytest.CaptureFixture[str],
) -> None:
    start("require")
    assert run("log").outcome is Outcome.OK
    [session] = lone_tracker.sessions()
    limits = Path(f"/proc/{session.pid}/limits").read_text()
    for name in ("nice priority", "realtime priority"):
        assert re.search(rf"Max {name} +0 +0 ", limits)
    end_session(lone_tracker, local_target, runner)
    assert "the log is closed" in capfd.readouterr().err
    assert lone_tracker.executions() == ["log"]


@needs_sandbox
@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_a_session_on_an_older_kernel_runs_candidates_where_that_is_allowed(
    start: Start, run: Callable[..., LibraryRun], version: int
) -> None:
    start("require-files", OLD_KERNEL.format(version=version))
    assert run("plain").outcome is Outcome.OK


@needs_sandbox
def test_a_session_on_an_older_kernel_is_refused_where_the_whole_sandbox_is_required(
    start: Start, run: Callable[..., LibraryRun]
) -> None:
    start("require", OLD_KERNEL.format(version=2))
    with pytest.raises(MallornError, match=r"Landlock 2, 6 has them.*all of it is required"):
        run("plain")


@needs_sandbox
@needs_cores
def test_threads_are_bound_to_cpus_though_the_sandbox_lets_no_session_bind_them(
    lone_tracker: TestFleet,
    start: Start,
    run: Callable[..., LibraryRun],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < (os.cpu_count() or 1):
        pytest.skip("TVM binds threads only if it has the whole host")
    monkeypatch.delenv("TVM_BIND_THREADS", raising=False)
    start("require")
    assert run("tame").outcome is Outcome.OK
    [session] = lone_tracker.sessions()
    threads = sorted(thread.id for thread in session.threads())
    assert [sorted(os.sched_getaffinity(thread)) for thread in threads] == [
        cpus,
        *([cpu] for cpu in cpus[1:]),
    ]
