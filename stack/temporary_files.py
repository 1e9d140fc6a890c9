"""Where a part of the service keeps its temporary files, so that a killed one leaves nothing for long."""

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
def own_folder(part: str) -> Iterator[Path]:
    """Keep the temporary files of this process, and of all that it starts, in one folder that ends with it.

    It lies in TMPDIR, which the parts of an embedded stack have in its data directory. What killed parts of
    this user left there is swept first.
    """
    shared = Path(tempfile.gettempdir())
    sweep(shared)
    with locked_folders.locked_folder(shared, f"{PREFIX}{part}-") as folder:
        told = HOST_FOLDER_VARIABLE in os.environ
        os.environ[HOST_FOLDER_VARIABLE] = str(host_folder())
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        try:
            yield folder
        finally:
            os.environ["TMPDIR"] = tempfile.tempdir = str(shared)
            if not told:
                del os.environ[HOST_FOLDER_VARIABLE]


def sweep(*places: Path) -> None:
    """Remove the folders of this user whose owners are dead."""
    for folder in left_by_the_dead(*places):
        locked_folders.remove_tree(folder)


def left_by_the_dead(*places: Path) -> Iterator[Path]:
    """Yield the folders of this user whose owners are dead, each locked until the next one is asked for."""
    return locked_folders.left_by_the_dead(PREFIX, *places)
