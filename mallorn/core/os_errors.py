"""What a host refuses one of its processes, in words: room, files, handles, memory."""

import errno
import os
import resource
from typing import Final

from mallorn.core.errors import HostFault, MallornError, StorageFull

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_WRITABLE: Final = frozenset({errno.EROFS, errno.EFBIG, errno.EIO, errno.EACCES, errno.EPERM})
_NO_HANDLE: Final = frozenset({errno.EMFILE, errno.ENFILE})
# As the system, and zig's linker, say it in the words of an error.
_NO_HANDLE_WORDS: Final = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE), "FdQuotaExceeded")


def os_error(error: BaseException, file: str | None = None) -> MallornError | None:
    """The sentence, and the way out, for what the host is to blame for; None for all else.

    `file`: what was written, where the error may not name it.
    """
    if isinstance(error, MemoryError):
        return HostFault("this process gets no more memory", hint="free -h; then start it again")
    if not isinstance(error, OSError):
        return None
    if error.errno in _NO_HANDLE:
        return no_handle(error.filename or file)
    if error.errno == errno.ENOMEM:
        return HostFault("this host has no more memory", hint="free -h; then start it again")
    if error.errno in FULL:
        return StorageFull()
    place = error.filename or file
    if error.errno not in _NOT_WRITABLE or place is None:
        return None
    return StorageFull(
        f"{place} cannot be read or written: {error.strerror}",
        hint=f"ls -ld {place}; mount; ulimit -f; then mallorn doctor",
    )


def no_handle(file: object = None) -> HostFault:
    """The error for a process that may open no more files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return HostFault(
        f"cannot open {file or 'another file'}: too many open files (limit {soft})",
        hint="ulimit -n 65536, and start the part again   (in a unit of systemd: LimitNOFILE=65536)",
    )


def lacks_handles(words: str) -> bool:
    """Whether an error of a library says that no file handle was left."""
    return any(said in words for said in _NO_HANDLE_WORDS)


def handle_left() -> bool:
    """Whether this process may open one more file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _NO_HANDLE
    return True
