"""Starts child processes, each in a session of its own and tied to the life of this process."""

import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from workers.children.launch import MEMORY_VARIABLE
from workers.children.log import ChildLog
from workers.children.serve import FD_VARIABLE

_ROOT = str(Path(__file__).resolve().parents[2])
# The kernel ties a child's life to the thread that started it: one thread, as old as we get, starts all.
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="child-starter")


def start_process(
    module: str, fd: int, log: ChildLog, env: Mapping[str, str], memory_bytes: int | None
) -> subprocess.Popen[bytes]:
    """Run `module` with the connection `fd`, printing to `log`."""
    limit = {MEMORY_VARIABLE: str(memory_bytes)} if memory_bytes else {}
    path = os.pathsep.join([_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    whole = {**os.environ, "PYTHONPATH": path, **env, **limit, FD_VARIABLE: str(fd)}
    return _thread.submit(_spawn, module, fd, log, whole).result()


def _spawn(module: str, fd: int, log: ChildLog, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: a file named like a module, in the directory where the user happens to be, is not imported.
        [sys.executable, "-P", "-m", "workers.children.launch", module, str(os.getpid())],
        env=env,
        pass_fds=(fd,),
        stdin=subprocess.DEVNULL,
        stdout=log.file,
        stderr=log.file,
        start_new_session=True,
    )
