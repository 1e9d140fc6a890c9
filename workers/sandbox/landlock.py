"""Landlock: which files a process and all that it starts can reach, and whom it can signal.

https://docs.kernel.org/userspace-api/landlock.html. Whoever is enclosed can also not look into processes
outside, as their memory, environment and open files, nor reach sockets that have a name but no file.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from workers.sandbox.syscall import syscall

# The numbers are the same on all architectures.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION: Final = 1  # a flag: asks for the version alone
_PATH_BENEATH: Final = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG = (1 << bit for bit in range(4, 9))
MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE, IOCTL = (1 << bit for bit in range(9, 16))

READ: Final = READ_FILE | READ_DIR
RUN: Final = READ | EXECUTE
MAKE: Final = MAKE_DIR | MAKE_REG | MAKE_SYM
WRITE: Final = READ | WRITE_FILE | TRUNCATE | REFER | REMOVE_DIR | REMOVE_FILE | MAKE
USE: Final = READ_FILE | WRITE_FILE | IOCTL  # a device file
APPEND: Final = READ_FILE | WRITE_FILE
_OF_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL
# What each version of Landlock knows of files.
_KNOWN: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}

#: From this version on signals and sockets without a file are walled off, too.
WHOLE: Final = 6
_BIND_AND_CONNECT: Final = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS: Final = 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """Which version of Landlock this kernel has. Raises OSError where it has none, or may not be asked."""
    return syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))


def wall_in(paths: Iterable[tuple[Path, int]], connects: bool) -> int:
    """Leave these paths alone, each with its rights; which version of Landlock did it. Raises OSError.

    Paths that are not there are passed over. `connects` leaves the network open.
    """
    found = version()
    files = max(bits for since, bits in _KNOWN.items() if since <= found)
    network = _BIND_AND_CONNECT if found >= 4 and not connects else 0
    scoped = _ABSTRACT_SOCKETS_AND_SIGNALS if found >= WHOLE else 0
    ruleset = _Ruleset(files, network, scoped)
    size = 24 if found >= WHOLE else 16 if found >= 4 else 8
    ruleset_fd = syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path, rights in paths:
            _allow(ruleset_fd, path, rights & files)
        syscall(_RESTRICT_SELF, ctypes.c_int(ruleset_fd), ctypes.c_uint32(0))
    finally:
        os.close(ruleset_fd)
    return found


def _allow(ruleset_fd: int, path: Path, rights: int) -> None:
    try:
        path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not there, or not ours to see
        return
    try:
        if not stat.S_ISDIR(os.fstat(path_fd).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, path_fd)
        number, flags = ctypes.c_int(_PATH_BENEATH), ctypes.c_uint32(0)
        syscall(_ADD_RULE, ctypes.c_int(ruleset_fd), number, ctypes.byref(rule), flags)
    finally:
        os.close(path_fd)
