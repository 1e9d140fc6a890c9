"""Closes the walls around this process, for good, and says how far this kernel lets it."""

import contextlib
import os
import re
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.sandbox import landlock, seccomp
from workers.sandbox.syscall import renounce_privileges
from workers.sandbox.system_paths import system_paths

WHOLE: Final = "full"
#: Of the modes of Settings.sandbox.
OFF: Final = "off"
BEST_EFFORT: Final = "best-effort"
REQUIRE: Final = "require"
FILE_BYTES: Final = 64 * 1024**3  # no library, export or array is so large
MORE_PROCESSES: Final = 1024
#: When memory runs out, the kernel ends those first whose score is higher.
FIRST_TO_GO: Final = 500
_NAMES: Final = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("CC", "CXX", "CPATH", "LIBRARY_PATH", "NO_COLOR", "COLUMNS", "MALLORN_CODE"),
)
#: Of compilers, drivers, numerical libraries, languages and Python itself.
_BEGINNINGS: Final = (
    *("LC_", "PYTHON", "TVM_", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "NUMEXPR_", "ZIG_"),
    *("CUDA_", "NVIDIA_", "ROCM_", "ROCR_", "HIP_", "HSA_", "AMD_", "GPU_", "OCL_", "OPENCL_", "VK_"),
    *("MALLOC_", "NVCC_", "GLIBC_", "ORT_", "COVERAGE_"),
)
# Vendors name their logins like their drivers' settings, as NVIDIA_API_KEY.
_SECRET: Final = re.compile(
    "KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|LOGIN|AUTH|DSN|URL|URI|PROXY", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a process needs of its host beside the system itself.

    `room`: the folder that it may write, and all that lies in it; None leaves every file within reach, for
    what a user does with files of their own.
    """

    room: Path | None
    spawns: bool = False  # runs a linker or a compiler
    connects: bool = False  # speaks TCP
    drives_gpu: bool = False  # by CUDA, whose driver does not start without a socket
    others: tuple[tuple[str, int], ...] = ()  # further paths, each with its rights


def enter_sandbox(walls: SandboxSpec) -> str:
    """Close them as far as this kernel can; `full`, or what is missing, in words.

    To be called before there is a second thread: one that runs already stays outside.
    """
    _limit()
    missing = [*_files(walls), *_calls(walls)]
    return f"without {'; '.join(missing)}" if missing else WHOLE


def _limit() -> None:
    """No more than a machine has, and fewer files and processes than would hurt it."""
    page_bytes, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    threads_of_the_host = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_DATA: page_bytes * pages,
        # Counted for a user, not for a process: the limit is above what others of the same user have.
        resource.RLIMIT_NPROC: threads_of_the_host + MORE_PROCESSES,
    }
    for limited, value in limits.items():
        _, most = resource.getrlimit(limited)
        bound = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limited, (bound, bound))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(FIRST_TO_GO))


def _files(walls: SandboxSpec) -> Iterator[str]:
    """What is missing of the walls around files, in words."""
    try:
        renounce_privileges()
        found = landlock.version() if walls.room is None else landlock.wall_in(_paths(walls), walls.connects)
    except OSError as error:
        yield f"Landlock ({error.strerror})"
        return
    if found < landlock.WHOLE:
        yield f"walls around signals and sockets (Landlock {found}; {landlock.WHOLE} has them)"


def _paths(walls: SandboxSpec) -> Iterator[tuple[Path, int]]:
    yield from system_paths()
    yield from ((Path(path), rights) for path, rights in walls.others)
    if walls.room is not None:
        yield walls.room, landlock.WRITE


def _calls(walls: SandboxSpec) -> Iterator[str]:
    """What is missing of the walls around system calls."""
    try:
        seccomp.refuse(walls.spawns, walls.connects, walls.drives_gpu)
    except OSError as error:
        yield f"seccomp ({error.strerror})"


def harmless(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that are on the allow-list: no key, no login, no address of a service."""
    return {
        name: value
        for name, value in environ.items()
        if name in _NAMES or (name.startswith(_BEGINNINGS) and not _SECRET.search(name))
    }
