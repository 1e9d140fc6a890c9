"""Landlock: limits the files and the processes that a process and its children can reach.

https://docs.kernel.org/userspace-api/landlock.html. A confined process can also not inspect
outside processes (memory, environment, open files), nor connect to abstract sockets, which
have no file.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mallorn.workers.sandbox.syscall import syscall

# The numbers are the same on all architectures.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION: Final = 1  # a flag: return only the version
_PATH_BENEATH: Final = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG = (1 << bit for bit in range(4, 9))
MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE, IOCTL = (1 << bit for bit in range(9, 16))

READ: Final = READ_FILE | READ_DIR
RUN: Final = READ | EXECUTE
MAKE: Final = MAKE_DIR | MAKE_REG | MAKE_SYM
WRITE: Final = READ | WRITE_FILE | TRUNCATE | REFER | REMOVE_DIR | REMOVE_FILE | MAKE
USE: Final = READ_FILE | WRITE_FILE | IOCTL  # a device file
_OF_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL
# File rights that each version of Landlock knows.
_KNOWN: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}

#: From this version on, Landlock also restricts signals and abstract sockets.
WHOLE: Final = 6
#: From this version on, Landlock also restricts `truncate`, and opening a file to empty it.
TRUNCATES: Final = 3
_BIND_AND_CONNECT: Final = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS: Final = 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """Return the kernel's version of Landlock. Raises OSError if missing or denied."""
    return syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))


def restrict_process(paths: Iterable[tuple[Path, int]] | None, opens_network: bool) -> int:
    """Restrict this process to these paths and rights; return Landlock's version. Missing
    paths are skipped; None allows all. `opens_network` allows TCP. Raises OSError."""
    kernel_version = version()
    file_rights = [bits for first, bits in _KNOWN.items() if first <= kernel_version]
    files = 0 if paths is None else max(file_rights)
    network = _BIND_AND_CONNECT if kernel_version >= 4 and not opens_network else 0
    scoped = _ABSTRACT_SOCKETS_AND_SIGNALS if kernel_version >= WHOLE else 0
    if not files | network | scoped:
        return kernel_version
    ruleset = _Ruleset(files, network, scoped)
    size = 24 if kernel_version >= WHOLE else 16 if kernel_version >= 4 else 8
    ruleset_fd = syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path, rights in paths or ():
            try:
                path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:  # it does not exist, or this process may not see it
                continue
            try:
                is_folder = stat.S_ISDIR(os.fstat(path_fd).st_mode)
                rule = _PathBeneath(rights & files & (-1 if is_folder else _OF_FILES), path_fd)
                number, flags = ctypes.c_int(_PATH_BENEATH), ctypes.c_uint32(0)
                syscall(_ADD_RULE, ctypes.c_int(ruleset_fd), number, ctypes.byref(rule), flags)
            finally:
                os.close(path_fd)
        syscall(_RESTRICT_SELF, ctypes.c_int(ruleset_fd), ctypes.c_uint32(0))
    finally:
        os.close(ruleset_fd)
    return kernel_version
