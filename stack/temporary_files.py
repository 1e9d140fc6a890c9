"""Temporary folders of the service's processes, removed even if a process was killed."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mallorn.core import locked_folders
from mallorn.core.host_id import HOST_FOLDER_VARIABLE, host_folder

PREFIX: Final = "mallorn-part-"


@contextmanager
def create_process_folder(part: str) -> Iterator[Path]:
    """Use, in the block, a new folder for temporary files of this process and its children.

    The folder lies in TMPDIR, which an embedded stack sets to a folder of its data
    directory, and is removed at the end. First, folders that killed processes of this user
    left in TMPDIR are removed.
    """
    parent = Path(tempfile.gettempdir())
    remove_abandoned_folders(parent)
    with locked_folders.locked_folder(parent, f"{PREFIX}{part}-") as folder:
        has_host_folder = HOST_FOLDER_VARIABLE in os.environ
        os.environ[HOST_FOLDER_VARIABLE] = str(host_folder())
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        try:
            yield folder
        finally:
            os.environ["TMPDIR"] = tempfile.tempdir = str(parent)
            if not has_host_folder:
                del os.environ[HOST_FOLDER_VARIABLE]


def remove_abandoned_folders(*places: Path) -> None:
    """Remove temporary folders that dead processes of this user left in these places."""
    for folder in find_abandoned_folders(*places):
        locked_folders.remove_tree(folder)


def find_abandoned_folders(*places: Path) -> Iterator[Path]:
    """Yield folders of this user's dead processes; each is locked until the next one."""
    return locked_folders.lock_abandoned_folders(PREFIX, *places)
