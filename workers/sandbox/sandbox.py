"""Puts this process into a sandbox, irrevocably, and reports what this kernel cannot restrict."""

import os
import re
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mallorn.core.registry import list_kinds
from mallorn.workers.sandbox import landlock, seccomp
from mallorn.workers.sandbox.syscall import renounce_privileges
from mallorn.workers.sandbox.system_paths import system_paths

WHOLE: Final = "full"
#: Modes of Settings.sandbox.
OFF: Final = "off"
BEST_EFFORT: Final = "best-effort"
REQUIRE: Final = "require"
#: Kernels before 6.12 satisfy it: their Landlock restricts files, and seccomp system calls.
REQUIRE_FILES: Final = "require-files"
#: Begins the gap that Landlock leaves on such kernels.
OLD_KERNEL: Final = "walls around signals and sockets"
FILE_BYTES: Final = 64 * 1024**3  # no library, export or array is so large
MORE_PROCESSES: Final = 1024
#: When memory runs out, the kernel first kills processes with higher scores.
FIRST_TO_GO: Final = 500
_NAMES: Final = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("CC", "CXX", "CPATH", "LIBRARY_PATH", "NO_COLOR", "COLUMNS", "MALLORN_CODE"),
)
#: Prefixes of variables for compilers, numerical libraries, languages and Python itself.
_PREFIXES: Final = (
    *("LC_", "PYTHON", "TVM_", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "NUMEXPR_", "ZIG_"),
    *("MALLOC_", "GLIBC_", "ORT_", "COVERAGE_"),
)
# Vendors name credentials like settings of their drivers, as VENDOR_API_KEY.
_SECRET: Final = re.compile(
    "KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|LOGIN|AUTH|DSN|URL|URI|PROXY", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """Host resources that a sandboxed process may use in addition to the system's own files.

    `room` is the folder that it may write, with all its contents. If it is None, all files
    stay accessible, for commands on a user's own files, and the sandbox is never `full`.
    """

    room: Path | None
    spawns: bool = False  # runs a linker or a compiler
    takes_sockets: bool = False  # gets connected sockets from its parent and makes none
    drives_gpu: bool = False  # by a driver that does not start without a socket
    others: tuple[tuple[str, int], ...] = ()  # further paths, each with its rights


def enter_sandbox(spec: SandboxSpec) -> str:
    """Enter the sandbox as far as this kernel can; return `full`, or what is missing, in
    words. Call this before a second thread starts: threads that already run stay outside."""
    # Limit memory, file sizes and processes.
    page_bytes, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    threads_of_the_host = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_DATA: page_bytes * pages,
        # The kernel counts all threads of the user: the limit must exceed those that already run.
        resource.RLIMIT_NPROC: threads_of_the_host + MORE_PROCESSES,
    }
    for resource_id, value in limits.items():
        _, hard_limit = resource.getrlimit(resource_id)
        bound = value if hard_limit == resource.RLIM_INFINITY else min(value, hard_limit)
        resource.setrlimit(resource_id, (bound, bound))
    with suppress(OSError):  # if memory runs out, the kernel kills this process first
        Path("/proc/self/oom_score_adj").write_text(str(FIRST_TO_GO))

    gaps = []  # what is not restricted, in words
    if (threads := len(os.listdir("/proc/self/task")) - 1) > 0:
        gaps.append(f"walls around {threads} of its threads, which started before")
    has_filter, truncates = True, False
    with suppress(OSError):  # reported below
        truncates = landlock.version() >= landlock.TRUNCATES
    try:
        renounce_privileges()
        seccomp.install_syscall_filter(spec.spawns, spec.takes_sockets, spec.drives_gpu, truncates)
    except OSError as error:
        has_filter = False
        gaps.append(f"seccomp ({error.strerror})")
    if spec.room is None:
        gaps.append("walls around files (no folder was given)")
    paths = [*system_paths(), *((Path(path), rights) for path, rights in spec.others)]
    room = None if spec.room is None else [*paths, (spec.room, landlock.WRITE)]
    try:
        # Without the filter, a process that takes sockets has to connect to its parent.
        kernel_version = landlock.restrict_process(room, spec.takes_sockets and not has_filter)
        if kernel_version < landlock.WHOLE:
            versions = f"Landlock {kernel_version}, {landlock.WHOLE} has them"
            harm = "a program can end your other processes"
            harm += "" if truncates else ", and empty files that it can read and you can write"
            gaps.append(f"{OLD_KERNEL} ({versions}): {harm}")
    except OSError as error:
        gaps.append(f"Landlock ({error.strerror})")
    return f"without {'; '.join(gaps)}" if gaps else WHOLE


def allowed_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables on the allow-list: no keys, credentials or service addresses."""
    drivers = tuple(prefix for kind in list_kinds() for prefix in kind.environment)
    return {
        name: value
        for name, value in environ.items()
        if name in _NAMES or (name.startswith((*_PREFIXES, *drivers)) and not _SECRET.search(name))
    }
