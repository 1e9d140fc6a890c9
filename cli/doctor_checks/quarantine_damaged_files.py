"""Where damaged files go: a folder of the data directory, from which nothing is deleted."""

import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fsspec.implementations.local import LocalFileSystem

from mallorn.core.artifact_uris import open_store
from mallorn.core.errors import StorageFull

DAMAGED: Final = "damaged"


@dataclass(frozen=True, slots=True)
class FileQuarantine:
    """The folder of one repair; it appears with the first file that is moved there."""

    folder: Path

    @classmethod
    def of(cls, data: Path) -> "FileQuarantine":
        """A new one in a data directory."""
        return cls(data / DAMAGED / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")

    def take(self, uri: str) -> Path:
        """Move a file of the artifact store there. Raises StorageFull where that fails."""
        fs, path = open_store(uri)
        place = self._place(Path(path).name)
        try:
            if isinstance(fs, LocalFileSystem):
                shutil.move(path, place)
            else:
                fs.get_file(path, str(place))
                fs.rm_file(path)
        except OSError as error:
            raise _cannot(uri, error) from error
        return place

    def link(self, file: Path) -> Path:
        """Give a file a second name there, so that the first may be given to another."""
        place = self._place(file.name)
        try:
            os.link(file, place)
        except OSError as error:
            raise _cannot(str(file), error) from error
        return place

    def _place(self, name: str) -> Path:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot(str(self.folder), error) from error
        return self.folder / name


def _cannot(what: str, error: OSError) -> StorageFull:
    return StorageFull(f"cannot move {what} aside: {error.strerror or error}", hint="df -h; ls -ld DATA_DIR")
