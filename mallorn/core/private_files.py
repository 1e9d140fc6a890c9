"""Make directories and files that other users cannot read, and write output files."""

import logging
import os
import stat
from pathlib import Path

from mallorn.core.errors import InvalidRequest

log = logging.getLogger(__name__)


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700, unless it exists."""
    if not path.is_dir():
        make_private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Create an empty file with mode 0600, or close an existing one to other users. SQLite
    gives its other files the mode of the database."""
    path.touch(0o600)
    close_to_others(path)


def is_open_to_others(path: Path) -> bool:
    """Return whether users outside the group have a right to a path. Temporary directories
    (sticky) do not count, because all users share them."""
    mode = path.stat().st_mode
    return bool(mode & stat.S_IRWXO) and not mode & stat.S_ISVTX


def close_to_others(path: Path) -> None:
    """Remove the rights of others from a path of this user, with a line in the log. A group
    that may write keeps its rights, because its members share the path on purpose."""
    info = path.stat()
    if info.st_uid == os.geteuid() and is_open_to_others(path):
        closed_bits = stat.S_IRWXO | (0 if info.st_mode & stat.S_IWGRP else stat.S_IRWXG)
        path.chmod(stat.S_IMODE(info.st_mode) & ~closed_bits)
        log.warning("%s was open to all users of this host and is not any more", path)


def open_output(path: Path) -> int:
    """Open an output file, created or emptied, and return its descriptor.

    A checkout of a stranger's files may hold links to other files of this user. So raises
    InvalidRequest if the path, or a directory of a relative path, is a link.
    """
    parents = () if path.is_absolute() else path.parents
    if any(place.is_symlink() for place in (path, *parents)):
        message = f"{path} is a link, or lies behind one, and is not written to"
        raise InvalidRequest(message, hint="name another directory, or its absolute path")
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o666)


def write_output(path: Path, text: str) -> None:
    """Replace the text of an output file. Raises what `open_output` raises."""
    with open(open_output(path), "w", encoding="utf-8") as file:
        file.write(text)
