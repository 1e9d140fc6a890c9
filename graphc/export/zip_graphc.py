"""This package as the one archive that an export carries; equal sources make equal bytes."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ARCHIVE: Final = "graphc.zip"
SCRIPT: Final = "apply.py"
KEPT: Final = (".py", ".c")


def write_archive(directory: Path) -> list[Path]:
    """Write `graphc.zip` and the script that uses it; their paths."""
    archive, script = directory / ARCHIVE, directory / SCRIPT
    with ZipFile(archive, "w") as made:
        for name, content in _sources(files("graphc"), "graphc"):
            made.writestr(ZipInfo(name), content, ZIP_DEFLATED)  # ZipInfo's own date is 1980, always
    script.write_bytes((files("graphc.export") / SCRIPT).read_bytes())
    return [archive, script]


@cache
def digest(package: str = "graphc") -> str:
    """Return a hash of a package's sources, of its subpackages too, as they are on disk at the first call."""
    found = sha256()
    for path, content in _sources(files(package), package):
        found.update(f"{path} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def _sources(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            found += _sources(each, f"{path}/{each.name}")
        elif each.name.endswith(KEPT):
            found.append((f"{path}/{each.name}", each.read_bytes()))
    return found
