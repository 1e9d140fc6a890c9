"""Temporary folders locked by their owner process; limits and removal of folder trees.

The kernel releases the lock of a dead process. Unlike a pid, a lock has the same meaning in
all containers that share a disk.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: What an untrusted process may store below a folder; RLIMIT_FSIZE limits one file.
MOST_BYTES: Final = 64 << 30
MOST_FILES: Final = 100_000


@contextmanager
def locked_folder(place: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder that this process holds locked, and remove it on exit."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        lock_fd = _locked(folder)
        if lock_fd is not None and folder.exists():
            break
        if lock_fd is not None:  # another process removed the folder before we locked it
            os.close(lock_fd)
    try:
        yield folder
    finally:
        remove_tree(folder)
        os.close(lock_fd)


def lock_abandoned_folders(prefix: str, *places: Path) -> Iterator[Path]:
    """Yield folders of this user's dead processes; each is locked until the next one."""
    for folder in [folder for place in places for folder in place.glob(f"{prefix}*")]:
        lock_fd = _locked(folder)
        if lock_fd is not None:
            try:
                yield folder
            finally:
                os.close(lock_fd)


def _locked(folder: Path) -> int | None:
    """Lock a folder; None if it is a link or another user's, or its owner is alive."""
    try:
        lock_fd = os.open(folder, os.O_RDONLY | _FOLDER)
    except OSError:
        return None
    try:
        if os.fstat(lock_fd).st_uid == os.getuid():
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock_fd
    except BlockingIOError:
        pass
    os.close(lock_fd)
    return None


def remove_tree(root: Path) -> None:
    """Remove a folder tree as far as this user can; never raise an error.

    A child process may leave links, folders without permissions, and nesting deeper than
    the limits of recursion or open files. So links are not followed, and each inner folder
    is moved to the top before it is emptied.
    """
    with suppress(OSError):
        root_fd = _opened(root.parent, root.name)
        try:
            remaining = os.listdir(root_fd)
            while remaining:
                with suppress(OSError):
                    remaining += _remove_entry(root_fd, remaining.pop())
        finally:
            os.close(root_fd)
        root.rmdir()


def _remove_entry(root_fd: int, name: str) -> list[str]:
    """Remove an entry of the top folder; first move its subfolders up, and return these."""
    with suppress(IsADirectoryError):
        os.unlink(name, dir_fd=root_fd)
        return []
    moved_names: list[str] = []
    folder_fd = _opened(root_fd, name)
    try:
        for inner in os.listdir(folder_fd):
            try:
                os.unlink(inner, dir_fd=folder_fd)
            except IsADirectoryError:
                os.close(_opened(folder_fd, inner))  # to move a folder, it must be writable
                moved_names.append(f"{os.urandom(8).hex()}-moved")
                os.rename(inner, moved_names[-1], src_dir_fd=folder_fd, dst_dir_fd=root_fd)
    finally:
        os.close(folder_fd)
    os.rmdir(name, dir_fd=root_fd)
    return moved_names


def _opened(parent: Path | int, name: str) -> int:
    if isinstance(parent, Path):
        path_fd = os.open(parent / name, os.O_PATH | _FOLDER)
    else:
        path_fd = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{path_fd}", 0o700)
        return os.open(".", os.O_RDONLY | _FOLDER, dir_fd=path_fd)
    finally:
        os.close(path_fd)


def find_excess(folder: Path, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> str:
    """Return which limit the files below a folder exceed, in words; empty if none. Files
    that were removed while they are open are not counted."""
    used_bytes = count = 0
    for parent, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        for name in files:
            with suppress(OSError):  # it was removed meanwhile
                used_bytes += os.lstat(os.path.join(parent, name)).st_blocks * 512
        if count > most_files:
            return f"more than {most_files} files"
        if used_bytes > most_bytes:
            return f"more than {most_bytes >> 30} GiB"
    return ""
