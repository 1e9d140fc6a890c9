"""One supervised process: how it is started, logged, probed and stopped, and what environment it has."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stack.forked_part import ForkedPart, can_fork
from stack.readiness_probes import Probe

READY_FILE_VARIABLE: Final = "MALLORN_READY_FILE"
MAX_LOG_BYTES = 16 * 1024**2
_PR_SET_PDEATHSIG = 1
# Loaded before any fork: the child may only make system calls between fork and exec.
_LIBC = ctypes.CDLL(None, use_errno=True)
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class ChildSpec:
    """A named process: its command, when it is ready, and which others must be ready before it starts."""

    name: str
    command: tuple[str, ...]
    ready: Probe
    needs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    start_timeout_sec: float = 300.0  # many start at once, on machines that are slow and busy too
    ready_file: Path | None = None  # told to the part, which writes it once it is ready
    essential: bool = True  # else the others go on without one that does not stay up
    main: Callable[[], object] | None = None  # does in a fork what the command does


class SupervisedChild:
    """A running ChildSpec. It leads a process group of its own and dies with this process."""

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
    def running(self) -> bool:
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

        def begin() -> None:
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
                preexec_fn=begin,
            )
        self.started_at = time.monotonic()
        self.ready = False

    def probe(self) -> bool:
        """Whether it has just become ready, or was so before."""
        self.ready = self.ready or self.spec.ready()
        return self.ready

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and all it started in its group."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def reap(self, timeout_sec: float) -> bool:
        """Wait for the end; False when it still runs."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_sec)
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_lines(self, count: int = 12) -> list[str]:
        """The end of the log."""
        with suppress(FileNotFoundError), self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 200 * count))
            return log.read().decode(errors="replace").splitlines()[-count:]
        return []


def trim_log(log: Path) -> None:
    """Keep a log from filling the disk: past the limit it is moved aside and begun anew."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > MAX_LOG_BYTES:
            # Processes hold the file open to append: copy and cut, a rename would take it along.
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)


@dataclass(frozen=True)
class DieWithParent:
    """Has the kernel send `number` to the calling process once `parent` is gone.

    It is a `preexec_fn`; a running process calls it itself, with `os.getppid()`.
    """

    number: signal.Signals
    parent: int = field(default_factory=os.getpid)

    def __call__(self) -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(self.number))
        if os.getppid() != self.parent:  # it died before the kernel was told
            os._exit(1)


def python_path() -> str:
    """Where a child finds this very version of us, installed or not."""
    return os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def search_path() -> str:
    """PATH and the interpreter's own directory: set-up puts a C compiler there where the system has none."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
