"""Where a part of the service keeps its temporary files, so that a killed one leaves nothing for long."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

from mallorn.core.host_id import HOST_FOLDER_VARIABLE, host_folder

PREFIX: Final = "mallorn-part-"


@contextmanager
def own_folder(part: str) -> Iterator[Path]:
    """Keep the temporary files of this process, and of all that it starts, in one folder that ends with it.

    It lies in TMPDIR, which the parts of an embedded stack have in its data directory. What killed parts of
    this user left there is swept first. A lock tells whose owner lives: the kernel takes it from the dead,
    and unlike a pid it means the same in every container that shares the directory.
    """
    shared = Path(tempfile.gettempdir())
    sweep(shared)
    folder, lock_fd = _new(shared, part)
    told = HOST_FOLDER_VARIABLE in os.environ
    os.environ[HOST_FOLDER_VARIABLE] = str(host_folder())
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        os.environ["TMPDIR"] = tempfile.tempdir = str(shared)
        if not told:
            del os.environ[HOST_FOLDER_VARIABLE]
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock_fd)


def sweep(*places: Path) -> None:
    """Remove the folders of this user whose owners are dead."""
    for folder in left_by_the_dead(*places):
        shutil.rmtree(folder, ignore_errors=True)


def left_by_the_dead(*places: Path) -> Iterator[Path]:
    """The folders of this user whose owners are dead, each locked until the next one is asked for."""
    for folder in chain.from_iterable(place.glob(f"{PREFIX}*") for place in places):
        lock_fd = _locked(folder)
        if lock_fd is not None:
            try:
                yield folder
            finally:
                os.close(lock_fd)


def _new(shared: Path, part: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{part}-", dir=shared))
        lock_fd = _locked(folder)
        if lock_fd is not None and folder.exists():
            return folder, lock_fd
        if lock_fd is not None:  # another's sweep was quicker than our lock
            os.close(lock_fd)


def _locked(folder: Path) -> int | None:
    """A lock on a folder of ours; None for links, for other users' and where its owner lives."""
    try:
        lock_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
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
