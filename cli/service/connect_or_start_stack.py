"""A stack to work with: the one that was named, one that runs here, or one started for the time being."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli.terminal.output import client, print_note
from mallorn.client import Client
from mallorn.core.errors import NoDevice, Unavailable
from mallorn.core.settings import Settings
from mallorn.core.targets import CUDA, LOCAL, parse_target
from mallorn.core.version import API
from mallorn.job import Job
from stack.data_directory import LOCK_PATIENCE_SEC, DataDir, StackInfo
from stack.in_process_coordinator import DataDirTransport, hints_for
from stack.readiness_probes import http_ok
from stack.stack_parts import mallorn
from stack.supervised_process import python_path

START_TIMEOUT_SEC: Final = 360.0  # longer than any part of a stack may take
STOP_TIMEOUT_SEC: Final = 90.0
DEVICE_TIMEOUT_SEC: Final = 180.0
POLL_SEC: Final = 0.05
LAST_LINES: Final = 12  # of the log of a service that ended


@dataclass(frozen=True)
class Connected:
    """A client of a stack that answers; `data` is its directory when it runs on this machine."""

    api: Client
    data: DataDir | None = None

    def check_runs(self) -> None:
        """Raise Unavailable, with the end of the service's log, if it ran on this machine and has ended."""
        if self.data is None or self.data.is_locked():
            return
        lines = _log(self.data).read_text(errors="replace").splitlines() if _log(self.data).exists() else []
        words = "\n".join(lines[-LAST_LINES:])
        raise Unavailable(f"the service on this machine has ended\n{words}", hint=f"ls {self.data.logs}")

    def kept(self, job: Job) -> Job:
        """A handle that reads a job of this stack also when the stack has ended."""
        if self.data is None:
            return job
        kept = Client(self.api.connection.url, transport=DataDirTransport(self.data))
        return Job(kept.connection, job.body)


@contextmanager
def connected_stack(url: str | None, api_key: str | None, data: Path | None = None) -> Iterator[Connected]:
    """Connect to `url`; without one to the stack on the data directory, which is started where none runs.

    What was started here serves other commands too, and stops with the last of them.
    """
    if url:
        with client(url, api_key) as api:
            yield Connected(api)
        return
    directory = DataDir((data.expanduser() if data else Settings().data_dir).absolute())
    directory.prepare()
    starter = Starter(directory)
    info: StackInfo | None = None
    try:
        with directory.used(), hints_for(directory):
            info = _running_or_started(directory, starter)
            with client(info.url, api_key) as api:
                yield Connected(api, directory)
    finally:
        if info is None or info.until_unused:
            _wait_for_end(directory, starter)


def wait_for_device(stack: Connected) -> None:
    """Return once a device of a stack on this machine is online, as its coordinator sees it."""
    deadline = time.monotonic() + DEVICE_TIMEOUT_SEC
    while stack.data is not None and not any(device.online for device in stack.api.devices()):
        if time.monotonic() > deadline:
            raise NoDevice("no device has registered", hint=f"less {stack.data.logs / 'device.log'}")
        time.sleep(POLL_SEC)


def submitted_target(stack: Connected, target: str) -> str:
    """Return the target to submit a job with.

    A service knows what `local` is once a device is online. A job for a service on this machine waits for
    none: its target is the last one of this host's device, or the one that is detected.
    """
    if target != LOCAL or stack.data is None:
        return target
    devices = stack.api.devices()
    if any(device.online for device in devices):
        return LOCAL
    from workers.device.detect_host import detect_target, host_fingerprint
    from workers.tvm.code_digest import TVM_VERSION

    here = host_fingerprint()["host_class"], TVM_VERSION
    ours = [each for each in devices if each.info.is_local and (each.host_class, each.tvm_version) == here]
    return ours[0].target if ours else detect_target().text


def asked_target(target: str, is_here: bool) -> str:
    """Return the target to name to a service. Raises InvalidTarget for one that no service takes.

    For a service on this machine, `cuda` is replaced by the target of this machine's GPU: a service knows
    only GPUs that have a device already.
    """
    if target == CUDA and is_here:
        from workers.device.target_support import target_on_this_machine

        return target_on_this_machine(CUDA).text
    if target not in (LOCAL, CUDA):
        parse_target(target)
    return target


def _running_or_started(directory: DataDir, starter: "Starter") -> StackInfo:
    deadline = time.monotonic() + START_TIMEOUT_SEC
    try:
        while time.monotonic() < deadline:
            info = directory.running_stack()
            if info is not None and http_ok(f"{info.url}{API}/healthz")():
                return info
            starter.start_unless_held()
            time.sleep(POLL_SEC)
    except KeyboardInterrupt:
        starter.stop()
        raise
    starter.stop()
    raise Unavailable(f"no stack on {directory.path} became ready", hint=f"less {_log(directory)}")


class Starter:
    """Starts a stack on a directory unless another process holds it."""

    def __init__(self, directory: DataDir) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start_unless_held(self) -> None:
        """Called until the stack is ready. Raises Unavailable, with its words, when it ended before."""
        held = self._directory.is_locked()
        if self._process is None and not held:
            print_note(f"starting the service on this machine, data in {self._directory.path}")
            log_file = _log(self._directory)
            log_file.unlink(missing_ok=True)
            with log_file.open("ab") as log:  # so that the stack may cut it when it has grown too long
                self._process = subprocess.Popen(
                    mallorn("up", "--port", "0", "--data", str(self._directory.path), "--until-unused"),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PYTHONPATH": python_path()},
                    start_new_session=True,  # Ctrl-C is ours: the stack must answer when the job is paused
                )
        elif self._process is not None and self._process.poll() is not None:
            if not held:
                words = _log(self._directory).read_text(errors="replace").strip()
                message = f"the service did not start on this machine:\n{words}"
                raise Unavailable(message, hint=f"ls {self._directory.logs}")
            self._process = None  # another command was quicker: its stack will do

    @property
    def running(self) -> bool:
        """Whether what was started here still runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()


def _log(directory: DataDir) -> Path:
    return directory.logs / "up.log"


def _wait_for_end(directory: DataDir, starter: Starter) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_SEC
    while (starter.running or directory.is_locked()) and time.monotonic() < deadline:
        if directory.has_users(LOCK_PATIENCE_SEC):
            return
        time.sleep(POLL_SEC)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGHUP too, but for what `nohup` or a shell had ignored."""
    heeded = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, signal.default_int_handler) for number in heeded}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
