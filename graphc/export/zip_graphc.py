"""Write this package as a zip archive for exports; equal sources give equal bytes."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ARCHIVE: Final = "graphc.zip"
SCRIPT: Final = "apply.py"
PACKAGE: Final = "mallorn.graphc"
KEPT: Final = (".py", ".c")


def write_archive(directory: Path) -> list[Path]:
    """Write `graphc.zip`, and `apply.py`, which uses it; return their paths."""
    archive, script = directory / ARCHIVE, directory / SCRIPT
    with ZipFile(archive, "w") as archive_file:
        # An empty `mallorn`, whether or not the machine has one: the graph compiler imports no other part.
        for name, content in [("mallorn/__init__.py", b""), *_sources(files(PACKAGE), "mallorn/graphc")]:
            archive_file.writestr(ZipInfo(name), content, ZIP_DEFLATED)  # ZipInfo's default date is 1980
    script.write_bytes((files(f"{PACKAGE}.export") / SCRIPT).read_bytes())
    return [archive, script]


@cache
def digest(package: str = PACKAGE) -> str:
    """Return a hash of a package's source files, which are read at the first call only."""
    hash_ = sha256()
    for path, content in _sources(files(package), package):
        hash_.update(f"{path} {len(content)}\n".encode())
        hash_.update(content)
    return hash_.hexdigest()


def _sources(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    sources: list[tuple[str, bytes]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            sources += _sources(entry, f"{path}/{entry.name}")
        elif entry.name.endswith(KEPT):
            sources.append((f"{path}/{entry.name}", entry.read_bytes()))
    return sources
