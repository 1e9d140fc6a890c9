"""A killable helper process, as its parent sees it.

It runs in a session of its own and is tied to the life of this process. Its environment has no variable that
could hold a secret.
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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Final, Self, TypeVar

from mallorn.core.errors import CodeReplaced
from mallorn.core.redaction import redact
from workers.sandbox.sandbox import SandboxSpec, harmless
from workers.subprocesses.cgroups import killed_for_memory
from workers.subprocesses.cpu_share import ProcessorShare
from workers.subprocesses.errors import (
    ChildCrashed,
    ChildError,
    ChildKilled,
    ChildNotStarted,
    ChildOutOfMemory,
    ChildStarved,
    ChildTimeout,
    unpack_error,
)
from workers.subprocesses.frame_channel import (
    FRAME_LIMIT_BYTES,
    Channel,
    ChannelClosed,
    Frame,
    FrameTooLarge,
)
from workers.subprocesses.launch_spec import LaunchSpec
from workers.subprocesses.pending_call import Call, PendingCall
from workers.subprocesses.serve_calls import ERROR, FD_VARIABLE, READY, RESULT
from workers.subprocesses.shutdown import STOP

# From the end of a child's connection to its own: on a busy host it takes a while.
END_TIMEOUT_SEC: Final = 30.0
_TAIL_BYTES = 2000
_LIMIT_BYTES = 1 << 20
_ROOT = str(Path(__file__).resolve().parents[2])
# The kernel ties a child's life to the thread that started it: one thread, as old as we get, starts all.
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="child-starter")
R = TypeVar("R")


class ChildLog:
    """An unnamed file that children append to; it is emptied when it has grown too large."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the log
        # The offset is shared with the child: without O_APPEND our reading would move its writing.
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_APPEND)

    def tail(self) -> str:
        size = os.fstat(self.file.fileno()).st_size
        return (
            os.pread(self.file.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
            .decode(errors="replace")
            .strip()
        )

    def trim(self) -> None:
        """Empty the file once it has grown past its limit."""
        if os.fstat(self.file.fileno()).st_size > _LIMIT_BYTES:
            os.ftruncate(self.file.fileno(), 0)

    def close(self) -> None:
        self.file.close()


@lru_cache(maxsize=1)
def compile_what_children_import() -> None:
    """Keep the bytecode of modules that only children import: behind their walls they cannot."""
    for room in ("graphc", "workers/tvm"):
        compileall.compile_dir(Path(_ROOT, room), quiet=2)


def start_process(
    orders: LaunchSpec, fds: Mapping[str, int], log: ChildLog, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Run what is ordered with these files open, which its environment names, printing to `log`."""
    compile_what_children_import()
    path = os.pathsep.join([_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    room = orders.walls.room
    scratch = {} if room is None else {"TMPDIR": str(room), "ZIG_GLOBAL_CACHE_DIR": str(room / ".zig")}
    # TVM would bind threads to the first processors of the machine, wherever the operator put this process.
    whole = {
        "TVM_BIND_THREADS": "0",
        **harmless(),
        "PYTHONPATH": path,
        **scratch,
        **env,
        **{name: str(fd) for name, fd in fds.items()},
    }
    return _thread.submit(_spawn, orders, tuple(fds.values()), log, whole).result()


def _spawn(
    orders: LaunchSpec, fds: Sequence[int], log: ChildLog, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: a file named like a module, in the directory where the user happens to be, is not imported.
        [sys.executable, "-P", "-m", "workers.subprocesses.child_main", str(os.getpid()), orders.text],
        env=env,
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        stdout=log.file,
        stderr=log.file,
        start_new_session=True,
    )


class Child:
    """Runs `MODULE` in a process of its own, in its own process group. A subclass declares what it serves.

    It lives behind walls (workers.sandbox): `room` is the only folder that it may write; besides the system's
    it may read this one, and use `others` by their rights. None as `room` leaves it all files, for what a
    user does with their own. A room lies in a folder that no child writes: a link in its place would open
    another folder. A class that SPAWNS runs a linker, one that CONNECTS speaks TCP.

    It starts with the first call, starts again after it died, and is replaced after `max_calls` calls.
    One call at a time; not for use by several threads at once. A call's time begins when it is ready.
    Every method that starts or waits raises ShutdownRequested once this process was asked to stop.
    """

    MODULE: ClassVar[str]
    SPAWNS: ClassVar[bool] = False
    CONNECTS: ClassVar[bool] = False

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
        self._walls = SandboxSpec(room, self.SPAWNS, self.CONNECTS, others=others)
        self._max_calls = max_calls
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._log: ChildLog | None = None
        self._reply: Frame | None = None
        self._calls = 0
        self._killed_before = 0  # for want of memory, when the last call began
        self._share_before = ProcessorShare()
        self._busy = False
        self.ready = False
        self.sandbox = ""  # how far its walls close, once it is ready

    def ask(self, call: Call[R]) -> R:
        """The result of a method.

        Raises ChildTimeout, ChildCrashed, ChildFailed, or the MallornError that the method raised.
        """
        return self.begin(call).wait()

    def begin(self, call: Call[R]) -> PendingCall[R]:
        """Send a call without waiting. One that was sent before and not answered is abandoned."""
        if self._busy:  # its late answer must not be taken for ours
            self.kill()
        self.start()
        self._calls += 1
        self._busy = True
        self._killed_before = killed_for_memory()
        self._share_before = ProcessorShare.of(self.pid)
        self._open_channel.put(Frame(call.method, call.params))
        return PendingCall(self, call)

    def answered(self) -> bool:
        """Move bytes without waiting; True when the call has its answer.

        Raises ChildCrashed when the process died, or sent what is no answer and was killed for it.
        """
        while self._reply is None:
            try:
                frame = self._open_channel.pump()
            except ChannelClosed:
                raise self._crash() from None
            except FrameTooLarge:
                raise self._end(f"sent more than {FRAME_LIMIT_BYTES >> 20} MiB at once") from None
            if frame is None:
                return False
            if frame.head == READY and not self.ready:
                self.ready, self.sandbox = True, frame.body.decode(errors="replace")
            elif frame.head in (RESULT, ERROR):
                self._reply = frame
            else:
                raise self._end("sent what is no answer")
        return True

    def take(self) -> bytes:
        """What the finished call returned, or raise what it raised."""
        reply, self._reply = self._reply, None
        if reply is None:
            raise RuntimeError("no answer yet: answered() first")
        self._busy = False
        if self._max_calls is not None and self._calls >= self._max_calls:
            self.kill()
        elif self._log is not None:
            self._log.trim()
        if reply.head == ERROR:
            error = unpack_error(reply.body)
            if isinstance(error, CodeReplaced):
                STOP.replaced()
                STOP.check()
            raise error
        return reply.body

    def wait(self, timeout_sec: float) -> None:
        """Sleep until `answered` can make progress, or so long."""
        self._open_channel.wait(timeout_sec)

    def expire(self, timeout_sec: float) -> ChildError:
        """Kill the process for taking too long; the error to raise."""
        was_ready = self.ready
        starved = ProcessorShare.of(self.pid).is_small_since(self._share_before)
        self.kill()
        if not was_ready:
            return ChildNotStarted(f"{self.name} did not start")
        said = f"{self.name} took longer than {timeout_sec:g} s"
        if starved:
            return ChildStarved(f"{said}; it mostly waited for a processor")
        return ChildTimeout(said)

    def fileno(self) -> int:
        """Where to wait for progress, with `events` for `select.poll`."""
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
        """Stop the process and all it started, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended process go on."""
        self._signal(signal.SIGCONT)

    def start(self) -> None:
        """Start the process if it does not run; returns before it is ready."""
        # Here, for our own children define this class too and have no settings.
        from mallorn.core.settings import settings

        STOP.check()
        if self.alive:
            return
        self.kill()
        ours, theirs = socket.socketpair()
        self._log = ChildLog()
        orders = LaunchSpec(self.MODULE, self._walls, settings().sandbox_mode(), self._memory_bytes)
        with contextlib.ExitStack() as given:
            ends = {FD_VARIABLE: given.enter_context(theirs)}
            ends |= {name: given.enter_context(end) for name, end in self.connections().items()}
            fds = {name: end.fileno() for name, end in ends.items()}
            self._process = start_process(orders, fds, self._log, self._env)
        STOP.enter(self._process.pid)
        self._channel = Channel(ours, FRAME_LIMIT_BYTES)
        self._calls, self.ready = 0, False

    def connections(self) -> dict[str, socket.socket]:
        """Return what else a starting process gets open: the variables that name it, and its ends."""
        return {}

    def kill(self) -> None:
        """End the process, all it started, and the call in progress."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            STOP.leave(self._process.pid)
            self._process.wait()
        for resource in (self._channel, self._log):
            if resource is not None:
                resource.close()
        self._process = self._channel = self._log = self._reply = None
        self._busy = self.ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def _open_channel(self) -> Channel:
        if self._channel is None:
            raise ChildCrashed(f"{self.name} is not running")
        return self._channel

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            # Signalled even when its leader is dead: a compiler that it started may still run.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _end(self, why: str) -> ChildCrashed:
        """Kill the process for what it did; return the error to raise."""
        self.kill()
        return ChildCrashed(f"{self.name} {why} and was killed")

    def _crash(self) -> ChildCrashed:
        how, died_of = "closed its connection", None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=END_TIMEOUT_SEC)
                died_of = signal.Signals(-code) if code < 0 else None
                how = f"exited with code {code}" if died_of is None else f"died of {died_of.name}"
        tail = self._log.tail() if self._log is not None else ""
        kind: type[ChildCrashed] = ChildCrashed if self.ready else ChildNotStarted
        self.kill()
        STOP.check()  # then it did not die of what it was doing
        if died_of is signal.SIGKILL:
            kind = ChildKilled
        if died_of is signal.SIGKILL and killed_for_memory() > self._killed_before:
            kind, how = ChildOutOfMemory, "took more memory than there is, and the kernel ended it"
        return kind(f"{self.name} {how}" + (f"\n{redact(tail)}" if tail else ""), died_of=died_of)
