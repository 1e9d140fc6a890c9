"""The parent's side of a killable helper process.

The helper has its own session and dies with this process. Its environment has no variable
that could hold a secret.
"""

import compileall
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Final, Self, TypeVar

from mallorn.core.errors import CodeReplaced
from mallorn.core.installation import IMPORT_ROOT, python_path
from mallorn.core.locked_folders import find_excess
from mallorn.core.redaction import redact
from mallorn.workers.sandbox.sandbox import SandboxSpec, allowed_environment
from mallorn.workers.subprocesses import errors, frame_channel
from mallorn.workers.subprocesses.cgroups import count_memory_kills
from mallorn.workers.subprocesses.child_main import LaunchSpec
from mallorn.workers.subprocesses.pending_call import Call, PendingCall
from mallorn.workers.subprocesses.serve_calls import ERROR, FD_VARIABLE, READY, RESULT
from mallorn.workers.subprocesses.shutdown import PROC, STOP

# How long a child may take to exit after its connection closed; a busy host is slow.
END_TIMEOUT_SEC: Final = 30.0
_TAIL_BYTES = 2000
_LIMIT_BYTES = 1 << 20
# While a call runs, its child's log and room are measured this often.
LOOK_SEC: Final = 5.0
# The kernel kills a child when the thread that started it ends: one lasting thread starts all.
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="child-starter")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """Seconds that a process's threads ran and waited (or were throttled)."""

    ran_sec: float = 0.0
    waited_sec: float = 0.0

    @classmethod
    def of(cls, pid: int | None, proc: Path = PROC) -> Self:
        """Read the seconds up to now; zeros if the process is gone or the kernel does not count."""
        try:
            threads = [task.read_text().split() for task in (proc / str(pid) / "task").glob("*/schedstat")]
        except OSError:
            return cls()
        return cls(*(sum(int(values[column]) for values in threads) / 1e9 for column in (0, 1)))

    def waited_more_than_ran(self, reference: "ProcessorShare") -> bool:
        return self.waited_sec - reference.waited_sec > self.ran_sec - reference.ran_sec


class ChildLog:
    """An unnamed log file to which a child appends. `trim` empties it when it is large."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the log
        # O_APPEND makes the child write at the end of the file, also after `trim` emptied it.
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_APPEND)

    def tail(self) -> str:
        size = os.fstat(self.file.fileno()).st_size
        tail = os.pread(self.file.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return tail.decode(errors="replace").strip()

    def trim(self) -> None:
        """Empty the file once it has grown past its limit."""
        if os.fstat(self.file.fileno()).st_size > _LIMIT_BYTES:
            os.ftruncate(self.file.fileno(), 0)

    def close(self) -> None:
        self.file.close()


@lru_cache(maxsize=1)
def compile_child_bytecode() -> None:
    """Write the bytecode of modules that only children import; their sandbox forbids it."""
    for folder in ("graphc", "kinds", "workers/tvm"):
        compileall.compile_dir(IMPORT_ROOT / "mallorn" / folder, quiet=2)


def start_process(
    orders: LaunchSpec, fds: Mapping[str, int], log: ChildLog, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a child that logs to `log`; `fds` maps environment variables to inherited files."""
    compile_child_bytecode()
    room = orders.walls.room
    scratch = {} if room is None else {"TMPDIR": str(room), "ZIG_GLOBAL_CACHE_DIR": str(room / ".zig")}
    # TVM would bind threads to the machine's first CPUs, whatever CPUs this process may use.
    child_env = {
        "TVM_BIND_THREADS": "0",
        **allowed_environment(),
        "PYTHONPATH": python_path(),
        **scratch,
        **env,
        **{name: str(fd) for name, fd in fds.items()},
    }

    def spawn() -> subprocess.Popen[bytes]:
        # -P: do not import files of the user's working directory that are named like a module.
        module = "mallorn.workers.subprocesses.child_main"
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(os.getpid()), orders.text],
            env=child_env,
            pass_fds=tuple(fds.values()),
            stdin=subprocess.DEVNULL,
            stdout=log.file,
            stderr=log.file,
            start_new_session=True,
        )

    return _thread.submit(spawn).result()


class Child:
    """Runs `MODULE` in its own process group. A subclass declares the methods it serves.

    The process is sandboxed (mallorn.workers.sandbox): it may write only to the folder
    `room`, read `room` and system folders, and use `others` with the rights given. If
    `room` is None, it may use all files, for commands on a user's own files. No child may
    write to the parent folder of `room`: a link in its place would open another folder. Set
    SPAWNS if the child runs a linker, TAKES_SOCKETS if its parent sends connected sockets.

    The process starts with the first call, restarts after a crash, and is replaced after
    `max_calls` calls. It runs one call at a time; several threads may call `ask` and `start`
    only. A call's time limit starts when the process is ready. Methods that start it or
    wait raise ShutdownRequested once this worker was asked to stop.
    """

    MODULE: ClassVar[str]
    SPAWNS: ClassVar[bool] = False
    TAKES_SOCKETS: ClassVar[bool] = False

    def __init__(
        self,
        *,
        env: Mapping[str, str] | None = None,
        memory_bytes: int | None = None,
        max_calls: int | None = None,
        name: str = "",
        room: Path | None = None,
        others: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.name = name or self.MODULE
        self._env = dict(env or {})
        self._memory_bytes = memory_bytes
        self.sandbox_spec = SandboxSpec(room, self.SPAWNS, self.TAKES_SOCKETS, others=others)
        self._max_calls = max_calls
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: frame_channel.Channel | None = None
        self.child_log: ChildLog | None = None
        self._reply: frame_channel.Frame | None = None
        self._calls, self._next_look_sec = 0, 0.0
        self._killed_before = 0  # processes killed for lack of memory before the last call
        self._share_before = ProcessorShare()
        self._busy = False
        self._lock = threading.RLock()
        self.ready = False
        self.sandbox = ""  # the sandbox level, known once the process is ready

    def ask(self, call: Call[R]) -> R:
        """Call a method and return its result. Raises ChildTimeout, ChildCrashed,
        ChildFailed, or the MallornError that the method raised."""
        with self._lock:
            return self.begin(call).wait()

    def begin(self, call: Call[R]) -> PendingCall[R]:
        """Send a call without waiting. An earlier call that is still unanswered is abandoned."""
        if self._busy:  # a late answer must not be taken for this call's
            self.kill()
        self.start()
        self._calls += 1
        self._busy = True
        self._killed_before = count_memory_kills()
        self._share_before = ProcessorShare.of(self.pid)
        self._open_channel.put(frame_channel.Frame(call.method, call.params))
        return PendingCall(self, call)

    def receive_answer(self) -> bool:
        """Send and receive without waiting; return True once the call has its answer. Raises
        ChildCrashed if the process died, or was killed for sending an invalid frame."""
        if self.child_log is not None and time.monotonic() > self._next_look_sec:
            self._next_look_sec = time.monotonic() + LOOK_SEC
            self.child_log.trim()
            if self.sandbox_spec.room is not None and (excess := find_excess(self.sandbox_spec.room)):
                raise self._kill_for_violation(f"wrote {excess} to its folder")
        while self._reply is None:
            try:
                frame = self._open_channel.receive_frame()
            except frame_channel.ChannelClosed:
                raise self._crash_error() from None
            except frame_channel.FrameTooLarge:
                raise self._kill_for_violation(
                    f"sent more than {frame_channel.FRAME_LIMIT_BYTES >> 20} MiB at once"
                ) from None
            if frame is None:
                return False
            if frame.head == READY and not self.ready:
                self.ready, self.sandbox = True, frame.body.decode(errors="replace")
            elif frame.head in (RESULT, ERROR):
                self._reply = frame
            else:
                raise self._kill_for_violation("sent an invalid answer")
        return True

    def take_result(self) -> bytes:
        """Return the packed result of the finished call, or raise its exception."""
        reply, self._reply = self._reply, None
        if reply is None:
            raise RuntimeError("the child has not answered yet: call receive_answer() first")
        self._busy = False
        if self._max_calls is not None and self._calls >= self._max_calls:
            self.kill()
        if reply.head == ERROR:
            error = errors.unpack_error(reply.body)
            if isinstance(error, CodeReplaced):
                STOP.stop_for_replaced_code()
                STOP.raise_if_requested()
            raise error
        return reply.body

    def wait(self, timeout_sec: float) -> None:
        """Sleep until `receive_answer` can make progress, or `timeout_sec` is over."""
        self._open_channel.wait(min(timeout_sec, LOOK_SEC))

    def kill_after_timeout(self, timeout_sec: float) -> errors.ChildError:
        """Kill the process because its call took too long; return the error to raise."""
        was_ready = self.ready
        starved = ProcessorShare.of(self.pid).waited_more_than_ran(self._share_before)
        self.kill()
        if not was_ready:
            return errors.ChildNotStarted(f"{self.name} did not start")
        message = f"{self.name} took longer than {timeout_sec:g} s"
        if starved:
            return errors.ChildStarved(f"{message}; it mostly waited for a processor")
        return errors.ChildTimeout(message)

    def fileno(self) -> int:
        """Return the file descriptor to wait on with `select.poll`, for `events`."""
        return self._open_channel.fileno()

    @property
    def events(self) -> int:
        return self._open_channel.events

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def suspend(self) -> None:
        """Stop the process, and all processes that it started, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def start(self) -> None:
        """Start the process if it is not running; return before it is ready."""
        with self._lock:
            STOP.raise_if_requested()
            if not self.alive:
                self._start()

    def _start(self) -> None:
        self.kill()
        own_end, child_end = socket.socketpair()
        self.child_log = ChildLog()
        orders = LaunchSpec(self.MODULE, self.sandbox_spec, self.sandbox_mode(), self._memory_bytes)
        with contextlib.ExitStack() as stack:
            ends = {FD_VARIABLE: stack.enter_context(child_end)}
            ends |= {name: stack.enter_context(end) for name, end in self.inherited_sockets().items()}
            fds = {name: end.fileno() for name, end in ends.items()}
            self._process = start_process(orders, fds, self.child_log, self._env)
        STOP.register_child(self._process.pid)
        self._channel = frame_channel.Channel(own_end, frame_channel.FRAME_LIMIT_BYTES)
        self._calls, self.ready = 0, False

    def sandbox_mode(self) -> str:
        """Return the mode of the sandbox around the process."""
        # Imported here because children import this module too and have no settings.
        from mallorn.core.settings import settings

        return settings().sandbox_mode()

    def inherited_sockets(self) -> dict[str, socket.socket]:
        """Return further sockets that the child inherits. The keys are the environment
        variables in which it finds their file descriptors."""
        return {}

    def kill(self) -> None:
        """Kill the process and all processes it started; abandon the call in progress."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            STOP.unregister_child(self._process.pid)
            self._process.wait()
        for resource in (self._channel, self.child_log):
            if resource is not None:
                resource.close()
        self._process = self._channel = self.child_log = self._reply = None
        self._busy = self.ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def _open_channel(self) -> frame_channel.Channel:
        if self._channel is None:
            raise errors.ChildCrashed(f"{self.name} is not running")
        return self._channel

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            # Sent even if the child is dead: a compiler that it started may still run.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _kill_for_violation(self, reason: str) -> errors.ChildCrashed:
        """Kill the process because it broke the protocol; return the error to raise."""
        self.kill()
        return errors.ChildCrashed(f"{self.name} {reason} and was killed")

    def _crash_error(self) -> errors.ChildCrashed:
        """Clean up after a process that closed its connection; return the error to raise."""
        cause, died_of = "closed its connection", None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=END_TIMEOUT_SEC)
                died_of = signal.Signals(-code) if code < 0 else None
                cause = f"exited with code {code}" if died_of is None else f"died of {died_of.name}"
        tail = self.child_log.tail() if self.child_log is not None else ""
        kind: type[errors.ChildCrashed] = errors.ChildCrashed if self.ready else errors.ChildNotStarted
        self.kill()
        STOP.raise_if_requested()  # a requested stop kills children, too
        if died_of is signal.SIGKILL:
            kind = errors.ChildKilled
        if died_of is signal.SIGKILL and count_memory_kills() > self._killed_before:
            kind, cause = errors.ChildOutOfMemory, "took more memory than there is, and the kernel ended it"
        return kind(f"{self.name} {cause}" + (f"\n{redact(tail)}" if tail else ""), died_of=died_of)
