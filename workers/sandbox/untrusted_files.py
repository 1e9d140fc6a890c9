"""Opens files in folders that an untrusted child process writes, safely for the worker.

A child may leave a link to a secret, or a pipe that never ends, where the worker expects a
file. The child's folder lies in a folder that only the worker writes; below it, every
folder and file is opened relative to its parent.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENXIO, EPERM
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from mallorn.core.errors import MallornError
from mallorn.core.locked_folders import remove_tree

CHUNK_BYTES: Final = 1 << 20
# Opening a pipe does not block, and a terminal does not become this process's controlling terminal.
_PLAIN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors of opening a file that a child can cause; all others are this host's fault.
_OF_A_CHILD: Final = frozenset({EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENXIO, EPERM})


class TamperedFile(MallornError):
    """A child process left something other than the plain file that it should write."""

    usual_hint = "mallorn resume JOB"


@contextmanager
def untrusted_folder(prefix: str, place: Path | None = None) -> Iterator[Path]:
    """Yield a new folder for a child to write; remove it at the end, whatever it holds."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    try:
        yield folder
    finally:
        remove_tree(folder)


def open_plain(folder: Path, name: str, most_bytes: int) -> IO[bytes]:
    """Open a file below a folder that a child writes. Raises TamperedFile unless it is
    plain, of this user, with one hard link and at most `most_bytes`."""
    *folders, last = name.split("/")
    if not {"", ".", ".."}.isdisjoint((*folders, last)):
        raise TamperedFile(f"a child process named the file {name!r}, which may be in another folder")
    open_fds = [os.open(folder, _FOLDER)]
    try:
        for part, flags in (*((part, _FOLDER) for part in folders), (last, _PLAIN)):
            open_fds.append(os.open(part, flags, dir_fd=open_fds[-1]))
        if (flaw := find_flaw(os.fstat(open_fds[-1]), most_bytes)) is not None:
            raise TamperedFile(f"a child process left {name}, which {flaw}")
        return os.fdopen(open_fds.pop(), "rb")
    except OSError as error:
        if error.errno not in _OF_A_CHILD:
            raise
        raise TamperedFile(f"a child process did not leave a plain file {name}: {error.strerror}") from None
    finally:
        for each_fd in open_fds:
            os.close(each_fd)


def copy_out(folder: Path, name: str, copy: Path, most_bytes: int) -> str:
    """Copy a file from a folder that a child writes to `copy`; return its SHA-256. Raises
    TamperedFile as `open_plain` does, or if the file grows beyond `most_bytes`."""
    digest, left_bytes = sha256(), most_bytes
    with open_plain(folder, name, most_bytes) as file, copy.open("wb") as target:
        while chunk := file.read(CHUNK_BYTES):
            left_bytes -= len(chunk)
            if left_bytes < 0:
                raise TamperedFile(f"a child process wrote more than {most_bytes} bytes to {name}")
            digest.update(chunk)
            target.write(chunk)
    return digest.hexdigest()


def find_flaw(status: os.stat_result, most_bytes: int) -> str | None:
    """Return why a child's file is not acceptable; None for a plain file."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a plain file"
    if status.st_nlink != 1:
        return f"has {status.st_nlink} hard links, of which some may be in another folder"
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_size > most_bytes:
        return f"has {status.st_size} bytes, more than the {most_bytes} allowed"
    return None
