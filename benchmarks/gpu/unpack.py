"""Unpack the transfers on the GPU machine, using only the standard library."""

import json
import lzma
import os
import tarfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from typing import Final

BASE: Final = "base.tar.xz"
PIECE: Final = "compiler.xz."
LIBRARIES: Final = "searched.tar.xz."
MANIFEST: Final = "digests.json"
COMPILER: Final = Path("tvm", "lib", "libtvm_compiler.so")
_UNPACKED: Final = "unpacked"
_CHUNK: Final = 1 << 22


class Incomplete(Exception):
    """Raised if a needed transfer is missing or incomplete."""


def unpack(transfers: Sequence[Path], home: Path) -> None:
    """Add transfers to those in the folder `home`; unpack archives that are complete.

    Raises Incomplete if the first transfer is missing or a file is damaged.
    """
    stored = home / "transfers"
    stored.mkdir(parents=True, exist_ok=True)
    for file in (file for transfer in transfers for file in sorted(transfer.iterdir())):
        draft = stored / f"{file.name}.part"
        copyfile(file, draft)
        draft.rename(stored / file.name)
    if not (stored / MANIFEST).exists():
        raise Incomplete(f"{home} has no transfer 1 yet")
    digests: dict[str, str] = json.loads((stored / MANIFEST).read_text())
    mark = home / f"{_UNPACKED}-{digests[BASE]}"
    if not mark.exists():
        _check(stored / BASE, digests[BASE])
        with tarfile.open(stored / BASE) as archive:
            # Python 3.11 has filters since 3.11.4.
            archive.extraction_filter = getattr(tarfile, "tar_filter", lambda member, _path: member)
            archive.extractall(home)
        mark.touch()
    pieces = [stored / name for name in digests if name.startswith(PIECE)]
    compiler = home / "site" / COMPILER
    if all(piece.exists() for piece in pieces) and not compiler.exists():
        _join(pieces, digests, compiler)
    parts = [stored / name for name in digests if name.startswith(LIBRARIES)]
    mark = home / f"{_UNPACKED}-{sha256(''.join(digests[part.name] for part in parts).encode()).hexdigest()}"
    if parts and all(part.exists() for part in parts) and not mark.exists():
        archive = home / "searched.tar"
        _join(parts, digests, archive)
        with tarfile.open(archive) as libraries:
            libraries.extraction_filter = getattr(tarfile, "tar_filter", lambda member, _path: member)
            libraries.extractall(home)
        archive.unlink()
        mark.touch()


def has_compiler(home: Path) -> bool:
    """Return whether TVM's compiler is unpacked."""
    return (home / "site" / COMPILER).exists()


def environment(home: Path) -> dict[str, str]:
    """Return the environment of processes in `home`; its packages precede this machine's."""
    paths = [str(home / name) for name in ("tree", "tree/examples", "tree/research", "site")]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    return os.environ | own


def _join(pieces: Sequence[Path], digests: dict[str, str], library: Path) -> None:
    decompressor = lzma.LZMADecompressor()
    draft = library.with_suffix(".part")
    with draft.open("wb") as target:
        for piece in pieces:
            _check(piece, digests[piece.name])
            with piece.open("rb") as source:
                while chunk := source.read(_CHUNK):
                    target.write(decompressor.decompress(chunk))
    if not decompressor.eof:
        raise Incomplete(f"{library.name} ends too early")
    draft.chmod(0o755)
    draft.rename(library)


def _check(file: Path, digest: str) -> None:
    if not file.exists() or sha256(file.read_bytes()).hexdigest() != digest:
        raise Incomplete(f"{file} has not come, or not whole: send its transfer again")
