"""Paths of the host that every process in a sandbox may use: system, this Python, and our code."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mallorn.core.registry import list_kinds
from mallorn.workers.sandbox.landlock import READ, RUN, USE

_PROGRAMS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt")
_FACTS: Final = ("/proc", "/sys")
# Not all of /etc: it holds keys and passwords, which root can read.
_ETC: Final = (
    "ld.so.cache", "ld.so.preload", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "passwd",
    "group", "nsswitch.conf", "hosts", "host.conf", "resolv.conf", "gai.conf", "services", "protocols",
    "mime.types", "os-release", "OpenCL", "vulkan",
)  # fmt: skip
# Wheels keep libraries that their modules link to in folders such as `numpy.libs`.
_MODULES: Final = (".py", ".so", ".zip", ".dist-info", ".egg-info", ".libs")
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")


def system_paths() -> Iterator[tuple[Path, int]]:
    """Yield the paths of the system, this Python and our code, with their Landlock rights."""
    programs = *_PROGRAMS, sys.prefix, sys.base_prefix, sys.exec_prefix
    yield from ((Path(path), RUN) for path in programs)
    yield from ((folder, RUN) for kind in list_kinds() for folder in kind.tool_folders())
    yield from ((Path(path), READ) for path in _FACTS)
    yield from ((Path("/etc", name), READ) for name in _ETC)
    yield from ((Path("/dev", name), USE) for name in _DEVICES)
    prefixes = sys.prefix, sys.base_prefix, "/usr"
    for folder in map(Path, sys.path):
        if any(folder.is_relative_to(prefix) for prefix in prefixes):
            continue
        try:
            entries = list(folder.iterdir()) if folder.is_dir() else [folder]
        except OSError:
            continue
        if any(entry.suffix == ".dist-info" for entry in entries):
            # pip's folder holds nothing but packages, and reading a package's version lists it.
            yield folder, READ
            continue
        # Only the packages and modules of the folder, not what else a checkout holds.
        for entry in entries:
            if entry.suffix in _MODULES or (
                not entry.name.startswith(".") and next(entry.glob("*.py"), None) is not None
            ):
                yield entry, READ
