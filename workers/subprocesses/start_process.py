"""Starts child processes, each in a session of its own and tied to the life of this process.

Their environment has no variable that could hold a secret.
"""

import compileall
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Final

from workers.subprocesses.launch_spec import LaunchSpec
from workers.subprocesses.serve_calls import FD_VARIABLE

_TAIL_BYTES = 2000
_LIMIT_BYTES = 1 << 20
_NAMES: Final = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("CC", "CXX", "CPATH", "LIBRARY_PATH", "NO_COLOR", "COLUMNS", "MALLORN_CODE"),
)
#: Of compilers, drivers, numerical libraries, languages and Python itself.
_BEGINNINGS: Final = (
    *("LC_", "PYTHON", "TVM_", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "NUMEXPR_", "ZIG_"),
    *("CUDA_", "NVIDIA_", "ROCM_", "ROCR_", "HIP_", "HSA_", "AMD_", "GPU_", "OCL_", "OPENCL_", "VK_"),
    *("MALLOC_", "GLIBC_", "ORT_", "COVERAGE_"),
)
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


def harmless(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What of an environment may be passed on."""
    return {name: value for name, value in environ.items() if name in _NAMES or name.startswith(_BEGINNINGS)}


@lru_cache(maxsize=1)
def compile_what_children_import() -> None:
    """Keep the bytecode of modules that only children import: behind their walls they cannot."""
    for room in ("graphc", "workers/tvm"):
        compileall.compile_dir(Path(_ROOT, room), quiet=2)


def start_process(
    orders: LaunchSpec, fd: int, log: ChildLog, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Run what is ordered with the connection `fd`, printing to `log`."""
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
        FD_VARIABLE: str(fd),
    }
    return _thread.submit(_spawn, orders, fd, log, whole).result()


def _spawn(orders: LaunchSpec, fd: int, log: ChildLog, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: a file named like a module, in the directory where the user happens to be, is not imported.
        [sys.executable, "-P", "-m", "workers.subprocesses.child_main", str(os.getpid()), orders.text],
        env=env,
        pass_fds=(fd,),
        stdin=subprocess.DEVNULL,
        stdout=log.file,
        stderr=log.file,
        start_new_session=True,
    )
