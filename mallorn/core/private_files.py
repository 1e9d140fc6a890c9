"""Make directories and files that other users of the host cannot read, and write output files."""

import logging
import os
import stat
from pathlib import Path

log = logging.getLogger(__name__)


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700; an existing one stays as it is."""
    if not path.is_dir():
        make_private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Create an empty file with mode 0600, or close an existing one to other users.

    SQLite gives its other files the mode of the database.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
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
        is_of_group = info.st_mode & stat.S_IWGRP
        path.chmod(
            stat.S_IMODE(info.st_mode) & ~(stat.S_IRWXO if is_of_group else stat.S_IRWXO | stat.S_IRWXG)
        )
        log.warning("%s was open to all users of this host and is not any more", path)


def open_output(path: Path) -> int:
    """Open a file for writing, empty, and return its descriptor. Raises OSError for a link,
    which may lead out of a checkout of somebody else's files."""
    return os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
