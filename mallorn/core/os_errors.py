"""Errors for what the host denies a process: disk space, file access, handles, memory."""

import errno
import os
import resource
from typing import Final

from mallorn.core.errors import HostFault, MallornError, StorageFull

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_WRITABLE: Final = frozenset({errno.EROFS, errno.EFBIG, errno.EIO, errno.EACCES, errno.EPERM})
_NO_HANDLE: Final = frozenset({errno.EMFILE, errno.ENFILE})
# Texts in errors of the system and of zig's linker.
_NO_HANDLE_WORDS: Final = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE), "FdQuotaExceeded")


def explain_os_error(error: BaseException, file: str | None = None) -> MallornError | None:
    """Return an error with a hint if the host caused `error`; None for any other cause.

    `file` is the file that was accessed, for errors that do not name it.
    """
    if isinstance(error, MemoryError):
        return HostFault("this process gets no more memory", hint="free -h; then start it again")
    if not isinstance(error, OSError):
        return None
    if error.errno in _NO_HANDLE:
        return too_many_files_error(error.filename or file)
    if error.errno == errno.ENOMEM:
        return HostFault("this host has no more memory", hint="free -h; then start it again")
    if error.errno in FULL:
        return StorageFull()
    path = error.filename or file
    if error.errno not in _NOT_WRITABLE or path is None:
        return None
    return StorageFull(
        f"{path} cannot be read or written: {error.strerror}",
        hint=f"ls -ld {path}; mount; ulimit -f; then mallorn doctor",
    )


def too_many_files_error(file: object = None) -> HostFault:
    """Return the error for a process that cannot open `file`: too many files are open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return HostFault(
        f"cannot open {file or 'another file'}: too many open files (limit {soft})",
        hint="ulimit -n 65536, and start the part again   (in a unit of systemd: LimitNOFILE=65536)",
    )


def reports_too_many_files(words: str) -> bool:
    """Return whether the text of a library's error reports too many open files."""
    return any(phrase in words for phrase in _NO_HANDLE_WORDS)


def can_open_file() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _NO_HANDLE
    return True
