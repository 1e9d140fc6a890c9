"""Starts child processes, each in a session of its own and tied to the life of this process.

Their environment has no variable that could hold a secret.
"""

import compileall
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from workers.sandbox.sandbox import harmless
from workers.subprocesses.launch_spec import LaunchSpec

_TAIL_BYTES = 2000
_LIMIT_BYTES = 1 << 20
_ROOT = str(Path(__file__).resolve().parents[2])
# The kernel ties a child's life to the thread that started it: one thread, as old as we get, starts all.
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="child-starter")


class ChildLog:
    """An unnamed file that children append to; it is emptied when it has grown too large."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the log
        # The offset is shared with the child: without O_APPEND our reading would move its writing.
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_APPEND)

    def tail(self) -> str:
        """The last lines."""
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
