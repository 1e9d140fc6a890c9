"""Write this package as a zip archive for exports; equal sources give equal bytes."""

from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from mallorn.graphc.core.graph_kind import KINDS

ARCHIVE: Final = "graphc.zip"
SCRIPT: Final = "apply.py"
PACKAGE: Final = "mallorn.graphc"
KEPT: Final = (".py", ".c")


def write_archive(directory: Path) -> list[Path]:
    """Write `graphc.zip`, and `apply.py`, which uses it; return their paths."""
    archive, script = directory / ARCHIVE, directory / SCRIPT
    with ZipFile(archive, "w") as archive_file:
        for name, content in [*_packages(), *_sources(files(PACKAGE), "mallorn/graphc"), *_graph_folders()]:
            archive_file.writestr(ZipInfo(name), content, ZIP_DEFLATED)  # ZipInfo's default date is 1980
    script.write_bytes((files(f"{PACKAGE}.export") / SCRIPT).read_bytes())
    return [archive, script]


def _packages() -> Iterator[tuple[str, bytes]]:
    """Yield an empty `mallorn`, whether or not the machine has one: exports import no other part."""
    yield "mallorn/__init__.py", b""
    for place in dict.fromkeys(KINDS.values()):
        for package in ("mallorn.kinds", place.rpartition(".graph.")[0]):
            yield f"{package.replace('.', '/')}/__init__.py", b""


def _graph_folders() -> Iterator[tuple[str, bytes]]:
    """Yield what kinds of hardware bring to the graph compiler."""
    for place in KINDS.values():
        package = place.partition(":")[0].rpartition(".")[0]
        yield from _sources(files(package), package.replace(".", "/"))


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
