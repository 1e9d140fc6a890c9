"""System calls that Python's standard library does not offer."""

import ctypes
import os
import platform
import struct
from typing import Final

_PR_SET_NO_NEW_PRIVS: Final = 38
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION: Final = 0x20080522
_CAPABILITY_SETS_BYTES: Final = 24  # two words each of effective, permitted, inheritable
_libc = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *args: object) -> int:
    """Make a system call and return its result. Raises OSError."""
    return _raise_on_error(_libc.syscall(ctypes.c_long(number), *args))


def prctl(option: int, *args: object) -> int:
    """Call `prctl` and return its result. Raises OSError."""
    words = [ctypes.c_ulong(arg) if isinstance(arg, int) else arg for arg in args]
    return _raise_on_error(_libc.prctl(ctypes.c_int(option), *words, *[ctypes.c_ulong(0)] * (4 - len(words))))


def renounce_privileges() -> None:
    """Drop all capabilities for good, also of later programs. Raises OSError."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    number = _CAPSET.get(platform.machine())
    if number is not None:
        header = struct.pack("<Ii", _CAPABILITY_VERSION, 0)
        syscall(number, header, bytes(_CAPABILITY_SETS_BYTES))


def _raise_on_error(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
