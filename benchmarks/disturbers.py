"""Load for a host on which something is timed: programs outside the service, quotas."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

from mallorn.core.errors import Unavailable
from mallorn.workers.subprocesses.child_main import die_with_parent

LOOP: Final = "while True: pass"
BURSTS: Final = """
import time
while True:
    until = time.monotonic() + 0.2
    while time.monotonic() < until: pass
    time.sleep(0.8)
"""
STREAM: Final = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy
a, b = numpy.ones(1 << 25, "float32"), numpy.ones(1 << 25, "float32")
while True: numpy.add(a, 1.0, out=b); a, b = b, a
"""
COMPILE: Final = """
import pathlib, subprocess, sys, tempfile
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "f.c")
    line = "double f%d(double x) { return x * %d + x / (x + %d); }"
    file.write_text("".join(line % (n, n, n) for n in range(4000)))
    command = [sys.argv[1], "-O3", "-c", str(file), "-o", str(file.with_suffix(".o"))]
    while True: subprocess.run(command, check=True)
"""
V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
PERIOD_US: Final = 100_000


@contextmanager
def programs(text: str, count: int, *arguments: str, nice: int = 0) -> Iterator[None]:
    """Run `count` programs, each in a new session; kill them and their children at the end."""
    command = ["nice", "-n", str(nice), sys.executable, "-c", text, *arguments]
    end_with_us = partial(die_with_parent, os.getpid())
    children = [
        subprocess.Popen(command, start_new_session=True, preexec_fn=end_with_us) for _ in range(count)
    ]
    try:
        yield
    finally:
        for program in children:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


@contextmanager
def quota(share: float) -> Iterator[None]:
    """Limit this process and its children to a share of the CPUs. Raises Unavailable."""
    group, quota_us = _group("mallorn-disturbed"), int(share * PERIOD_US * (os.cpu_count() or 1))
    limit = group / "cpu.cfs_quota_us", f"{quota_us}"
    if not limit[0].exists():  # version 2
        limit = group / "cpu.max", f"{quota_us} {PERIOD_US}"
    try:
        limit[0].write_text(limit[1])
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        raise Unavailable(f"no quota can be made here: {error}", hint="run it as root, on a host") from None
    try:
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(os.getpid()))


def _group(name: str) -> Path:
    group = (V1 if V1.is_dir() else V2) / name
    try:
        group.mkdir(exist_ok=True)
    except OSError as error:
        raise Unavailable(f"no control group can be made here: {error}", hint="run it as root") from None
    return group


@contextmanager
def compilation() -> Iterator[None]:
    """Run one C compiler per CPU. Raises Unavailable if there is none."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise Unavailable("there is no C compiler here", hint="apt-get install gcc")
    with programs(COMPILE, os.cpu_count() or 1, compiler):
        yield


#: Loads by the name of the benchmark's row.
COMPANY: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {
    "quiet": nullcontext,
    "one program": lambda: programs(LOOP, 1),
    "two programs": lambda: programs(LOOP, 2),
    "two at nice 19": lambda: programs(LOOP, 2, nice=19),
    "bursts": lambda: programs(BURSTS, 2),
    "memory": lambda: programs(STREAM, 1),
    "half a quota": lambda: quota(0.5),
    "compilation": compilation,
}
