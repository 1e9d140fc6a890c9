"""Pack archives for the GPU machine, cut so that each fits into one transfer.

Transfer 1 holds all that part 1 needs. The next ones hold TVM's compiler, which the other parts need and
which is larger than everything else, and the last ones other packages that only those parts import, the
data of a new database, and the libraries that were built for part 3.
"""

import json
import lzma
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Final

from benchmarks.gpu.packages import LATER, ROOT, SPARE, lacking, lay_packages
from benchmarks.gpu.unpack import BASE, COMPILER, LIBRARIES, MANIFEST, PIECE
from benchmarks.house_tree import ROOMS

# The product, and those benchmarks and examples that the parts run.
_TREE: Final = (
    *(*ROOMS, "research"),
    *("benchmarks/__init__.py", "benchmarks/gpu", "examples/zoo", "examples/build.py"),
)
# What a new database begins with: part 1 has none.
_LATER_TREE: Final = ("db/bundled/data",)
SEARCHED: Final = "searched"  # folder of what is built for part 3
_CHUNK: Final = 1 << 20
Say = Callable[[str], None]


class TooLarge(Exception):
    """Raised when a transfer would be larger than its limit."""


def pack(out: Path, python: str, limit_bytes: int, preset: int, say: Say) -> dict[str, int]:
    """Write the transfers below `out / "send"`, and return their sizes in bytes.

    Raises TooLarge if what part 1 needs, with all in `out / "kernels"`, does not fit into one transfer.
    """
    site = _site(out, python, say)
    compiler = _compressed_compiler(out, site, preset, say)
    send = out / "send"
    rmtree(send, ignore_errors=True)
    first = send / "1"
    first.mkdir(parents=True)
    say("packing the product, its packages and the kernels")
    write_base(first / BASE, site, out / "kernels", preset)
    if (first / BASE).stat().st_size > limit_bytes:
        raise TooLarge(f"{first / BASE} has {(first / BASE).stat().st_size} bytes, more than {limit_bytes}")
    pieces = [first / BASE]
    pieces += _cut(compiler, PIECE, send, limit_bytes)
    say("packing the libraries of part 3, and the packages of later parts")
    pieces += _cut(write_later_parts(out, site, preset), LIBRARIES, send, limit_bytes)
    digests = {piece.name: sha256(piece.read_bytes()).hexdigest() for piece in pieces}
    (first / MANIFEST).write_text(json.dumps(digests))
    sizes = {
        folder.name: sum(file.stat().st_size for file in folder.iterdir())
        for folder in sorted(send.iterdir())
    }
    too_large = [name for name, size in sizes.items() if size > limit_bytes + _CHUNK]
    if too_large:
        raise TooLarge(f"transfer {too_large[0]} has {sizes[too_large[0]]} bytes, more than {limit_bytes}")
    return sizes


def tree_bytes() -> int:
    """Return the bytes of all tracked files, which are part of every transfer."""
    return sum((ROOT / name).stat().st_size for name in _tracked() if (ROOT / name).is_file())


def _tracked(*places: str) -> list[str]:
    process = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in process.stdout.split("\0") if name]


def _site(out: Path, python: str, say: Say) -> Path:
    """Return the folder of packages, installing them if the list of packages changed."""
    site, mark = out / "site", out / "site.txt"
    packages = "\n".join((python, *lacking(python), *SPARE))
    if not mark.exists() or mark.read_text() != packages:
        say("fetching packages")
        mark.unlink(missing_ok=True)
        lay_packages(site, python, lacking(python))
        mark.write_text(packages)
    return site


def _compressed_compiler(out: Path, site: Path, preset: int, say: Say) -> Path:
    """Return the compiler as an .xz file; compress it, for minutes, if the library changed."""
    library = site / COMPILER
    packed = out / f"{library.stem}-{sha256(library.read_bytes()).hexdigest()[:12]}-{preset}.xz"
    if not packed.exists():
        say("compressing TVM's compiler, which takes minutes")
        draft = packed.with_suffix(".part")
        with library.open("rb") as source, lzma.open(draft, "wb", filters=_filters(preset)) as target:
            while chunk := source.read(_CHUNK):
                target.write(chunk)
        draft.rename(packed)
    return packed


def _filters(preset: int) -> list[dict[str, int]]:
    """Return LZMA filters for machine code: absolute call addresses compress better."""
    return [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": preset}]


def write_base(file: Path, site: Path, kernels: Path, preset: int) -> None:
    with (
        lzma.open(file, "wb", filters=_filters(preset)) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name in sorted({*_tracked(*_TREE)} - {*_tracked(*_LATER_TREE)}):
            archive.add(ROOT / name, f"tree/{name}")
        for path in sorted(site.rglob("*")):
            place = path.relative_to(site)
            is_sent = path.is_file() and path != site / COMPILER and place.parts[0] not in LATER
            if is_sent and "__pycache__" not in path.parts:
                archive.add(path, f"site/{place}")
        if kernels.is_dir():
            archive.add(kernels, "kernels")


def write_later_parts(out: Path, site: Path, preset: int) -> Path:
    """Write and return the archive of what no part before the third needs."""
    file = out / "searched.tar.xz"
    with (
        lzma.open(file, "wb", filters=_filters(preset)) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name in _tracked(*_LATER_TREE):
            archive.add(ROOT / name, f"tree/{name}")
        for name in LATER:
            if (site / name).is_dir():
                archive.add(site / name, f"site/{name}")
        if (out / SEARCHED).is_dir():
            archive.add(out / SEARCHED, SEARCHED)
    return file


def _cut(file: Path, prefix: str, send: Path, limit_bytes: int) -> Iterator[Path]:
    """Write the pieces of a file to folders of transfers of their own, and yield them."""
    count = -(-file.stat().st_size // limit_bytes)
    size = -(-file.stat().st_size // count)
    first = 1 + len(list(send.iterdir()))
    with file.open("rb") as source:
        for number in range(count):
            piece = send / str(first + number) / f"{prefix}{number}"
            piece.parent.mkdir()
            piece.write_bytes(source.read(size))
            yield piece
