"""The files under the locks of a host: they lie where everybody may make files, and other users' do, too."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from mallorn.core.errors import HostFault

_CLOSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP})
# Of a pipe at the name nobody waits for the other end, and a link is not followed.
_HOW: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_lock(path: Path, mode: int) -> int:
    """The file, with this mode where it is ours or new. Raises HostFault where it is closed to us."""
    try:
        with suppress(FileNotFoundError):
            return _open(path, mode)
        _make(path, mode)
        return _open(path, mode)
    except OSError as error:
        if error.errno not in _CLOSED:
            raise
        raise HostFault(
            f"{path}, on which all who compute here lock, cannot be opened: {error.strerror}",
            hint=f"ls -l {path}   (its owner types: chmod {mode:o} {path})",
        ) from None


def _open(path: Path, mode: int) -> int:
    lock_fd = os.open(path, _HOW)
    found = os.fstat(lock_fd)
    if found.st_uid == os.getuid() and stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) != mode:
        os.fchmod(lock_fd, mode)  # made under a closed umask
    return lock_fd


def _make(path: Path, mode: int) -> None:
    """Whole at once, and whatever the umask of who comes first: others meet it as it is to be."""
    with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}-") as file:
        os.fchmod(file.fileno(), mode)
        with suppress(FileExistsError):
            os.link(file.name, path)
