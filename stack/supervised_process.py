"""A supervised child process: how it starts (as a program or fork), is probed, logged and ends."""

import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit

from mallorn.core.errors import Unavailable
from mallorn.core.fleet_key import FleetKey
from mallorn.core.targets import Target

Probe = Callable[[], bool]
TIMEOUT_SEC = 2.0
READY_FILE_VARIABLE: Final = "MALLORN_READY_FILE"
MAX_LOG_BYTES = 16 * 1024**2
_PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec, a child may only make system calls.
_LIBC = ctypes.CDLL(None, use_errno=True)
# Fields of /proc/self/stat after the program's name that hold addresses.
_ARGUMENTS, _ARGUMENTS_END, _ENVIRONMENT_END = 45, 46, 48


def http_answers(url: str) -> bool:
    """Return whether a GET of the URL answers with status 200."""
    parts = urlsplit(url)
    with closing(HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SEC)) as connection:
        try:
            connection.request("GET", parts.path)
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False


def broker_answers(socket_path: Path) -> bool:
    """Return whether the broker on a unix socket answers a PING."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_SEC)
            connection.connect(str(socket_path))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def has_registered_device(tracker: tuple[str, int], fleet: FleetKey, target: Target | None = None) -> bool:
    """Return whether a device, for `target` if given, is registered at the tracker."""
    from mallorn.workers.device.tracker_client import tracker_key

    server_key = f"server:{tracker_key(target)}" if target else None
    return any(server_key in (None, key) for key in _fetch_registered_keys(tracker, fleet) or ())


def tracker_answers(tracker: tuple[str, int], fleet: FleetKey) -> bool:
    """Return whether the tracker answers a request for its summary."""
    return _fetch_registered_keys(tracker, fleet) is not None


def _fetch_registered_keys(address: tuple[str, int], fleet: FleetKey) -> list[str] | None:
    from mallorn.workers.device.tracker_client import TrackerClient

    try:
        with TrackerClient(address, TIMEOUT_SEC, fleet) as tracker:
            return [str(server["key"]) for server in tracker.summary()["server_info"]]
    except Unavailable:
        return None


def can_fork() -> bool:
    """Return whether this process has one thread; a fork would keep others' locks held."""
    return len(os.listdir("/proc/self/task")) == 1


@dataclass(frozen=True)
class ForkedPart:
    """`preexec_fn` that runs `main` in the forked child instead of a program, then exits."""

    main: Callable[[], object]
    command: Sequence[str]
    env: Mapping[str, str]

    def __call__(self) -> NoReturn:
        code = 1
        try:
            # This closes Popen's error pipe, too, so that Popen returns in the parent.
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            gc.enable()  # Popen switches it off while it forks
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.environ.update(self.env)
            tempfile.tempdir = None
            _show_command_line(self.command)
            self.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _show_command_line(command: Sequence[str]) -> None:
    """Show `command` in `ps`: write it over this process's arguments and environment."""
    for name, value in os.environ.items():
        os.environ[name] = value  # makes the C library store a copy elsewhere
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end, last = (int(fields[i]) for i in (_ARGUMENTS, _ARGUMENTS_END, _ENVIRONMENT_END))
    words = [os.fsencode(word) for word in command]
    text = b"\0".join(words) + b"\0"
    text = text.ljust(end - start, b"\0") if len(text) <= end - start else b" ".join(words) + b"\0"
    if 0 < start < start + len(text) <= last:
        ctypes.memmove(start, text, len(text))


@dataclass(frozen=True)
class ChildSpec:
    """A named process: its command, its readiness probe, and the processes it waits for."""

    name: str
    command: tuple[str, ...]
    ready: Probe
    needs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    start_timeout_sec: float = 300.0  # many start at once, even on slow or busy machines
    ready_file: Path | None = None  # a file that the part creates once it is ready
    essential: bool = True  # if False, the other parts continue without it
    main: Callable[[], object] | None = None  # does the command's work in a fork


class SupervisedChild:
    """A process that runs a ChildSpec, leads its own group, and dies with this process."""

    def __init__(self, spec: ChildSpec, log: Path) -> None:
        self.spec = spec
        self.log = log
        self.ready = False
        self.started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        if log.exists():
            log.replace(log.with_suffix(".log.1"))

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start the process, by a fork if that is safe; append its output to the log."""
        if self.spec.ready_file:
            self.spec.ready_file.unlink(missing_ok=True)
        ready = {READY_FILE_VARIABLE: str(self.spec.ready_file)} if self.spec.ready_file else {}
        env = {**os.environ, **self.spec.env, **ready}
        die, fork = DieWithParent(signal.SIGKILL), None
        if self.spec.main is not None and can_fork():
            fork = ForkedPart(self.spec.main, self.spec.command, env)
            sys.stdout.flush()

        def run_forked() -> None:
            die()
            if fork is not None:
                fork()

        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.spec.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                restore_signals=fork is None,
                preexec_fn=run_forked,
            )
        self.started_at = time.monotonic()
        self.ready = False

    def check_ready(self) -> bool:
        """Return whether the process is ready now or was before."""
        self.ready = self.ready or self.spec.ready()
        return self.ready

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and all others in its process group."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def wait_for_exit(self, timeout_sec: float) -> bool:
        """Wait for the process to exit; return False if it still runs after `timeout_sec`."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_sec)
        return not self.is_running

    def last_lines(self, count: int = 12) -> list[str]:
        """Return the last `count` lines of the log; empty if there is no log."""
        with suppress(FileNotFoundError), self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 200 * count))
            return log.read().decode(errors="replace").splitlines()[-count:]
        return []


def trim_log(log: Path, limit_bytes: int = MAX_LOG_BYTES) -> None:
    """Move the newest `limit_bytes` of a log over that limit to `.log.1` and empty it, so
    that logs do not fill the disk. Links are not followed."""
    if log.is_symlink():
        return
    with suppress(FileNotFoundError), open(os.open(log, os.O_RDWR | os.O_NOFOLLOW), "r+b", 0) as file:
        if file.seek(0, os.SEEK_END) > limit_bytes:
            file.seek(-limit_bytes, os.SEEK_END)
            with tempfile.NamedTemporaryFile(dir=log.parent, delete=False) as copy:
                copy.write(file.read(limit_bytes))
            os.replace(copy.name, log.with_suffix(".log.1"))
            # Processes have the file open to append: after a rename they would write to the old one.
            file.truncate(0)


@dataclass(frozen=True)
class DieWithParent:
    """Makes the kernel send signal `number` to the calling process when `parent` dies.

    Use it as a `preexec_fn`, or call it in a running process with `os.getppid()` as `parent`.
    """

    number: signal.Signals
    parent: int = field(default_factory=os.getpid)

    def __call__(self) -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(self.number))
        if os.getppid() != self.parent:  # the parent died before the call above
            os._exit(1)


def search_path() -> str:
    """Return PATH plus the interpreter's folder, which may hold an installed C compiler."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
