"""Read the metadata in a library, and check that this machine can run it, without loading it."""

import json
import os
import platform
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from mallorn_runtime.errors import LibraryRefused

FORMAT: Final = 1  # of the metadata
SECTION: Final = b".mallorn"
MOST_BYTES: Final = 16 << 20  # of the metadata
MOST_SECTIONS: Final = 4096
HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION_HEADER: Final = struct.Struct("<IIQQQQIIQQ")
ELF64_LITTLE_ENDIAN: Final = b"\x7fELF\x02\x01"
ARCHITECTURES: Final = {62: "x86_64", 183: "aarch64", 243: "riscv64"}  # by e_machine
OTHER_NAMES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
PROCESSORS: Final = Path("/proc/cpuinfo")
FLAGS: Final = ("flags", "Features")  # lines of x86 and of ARM

Dims = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output: its name, data type and shape, with names of free dimensions."""

    name: str
    dtype: str
    shape: Dims

    def __str__(self) -> str:
        return f"{self.dtype} {format_shape(self.shape)}"


@dataclass(frozen=True, slots=True)
class LibraryFile:
    """A library that was not loaded: what its file says of itself."""

    path: Path
    identity: tuple[int, ...]  # differs if the file was replaced
    architecture: str
    meta: Mapping[str, Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    ranges: Mapping[str, tuple[int, int]]  # smallest and largest size of each free dimension


class _Damaged(Exception):
    """Raised if bytes are not as the format demands."""


def format_shape(shape: Sequence[int | str]) -> str:
    """Return a shape as text, such as `4x16` or `batchx16`; a scalar's is `scalar`."""
    return "(" + ", ".join(map(str, shape)) + ")"


def read_library_file(path: str | os.PathLike[str]) -> LibraryFile:
    """Read a library's metadata. Raises LibraryRefused if it is no library of Mallorn."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise LibraryRefused(f"{path} is no file")
            architecture, text = _find_section(file, status.st_size)
            identity = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
    except OSError as error:
        raise LibraryRefused(f"{path} cannot be read: {error.strerror}") from None
    except (_Damaged, struct.error) as error:
        raise LibraryRefused(f"{path} is no library of Mallorn: {error}") from None
    try:
        meta = json.loads(text)
        number = meta["format"]
        if number != FORMAT:
            raise LibraryRefused(
                f"the metadata of {path} has format {number!r:.20}, and this version of mallorn-runtime reads "
                f"format {FORMAT}: install the version that belongs to the Mallorn that compiled it"
            )
        inputs, outputs = (tuple(_read_specs(meta[key])) for key in ("inputs", "outputs"))
        ranges = {str(name): (int(low), int(high)) for name, (low, high) in meta["ranges"].items()}
        if not isinstance(meta["cpu_features"], list) or not isinstance(meta["target"], dict):
            raise TypeError("cpu_features")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise LibraryRefused(f"the metadata of {path} is damaged: compile the library again") from None
    return LibraryFile(path, identity, architecture, meta, inputs, outputs, ranges)


def _read_specs(rows: Sequence[Mapping[str, Any]]) -> Iterator[TensorSpec]:
    for row in rows:
        shape = tuple(size if isinstance(size, int) else str(size) for size in row["shape"])
        yield TensorSpec(str(row["name"]), str(row["dtype"]), shape)


def _find_section(file: BinaryIO, total: int) -> tuple[str, bytes]:
    """Return the architecture of an ELF file and the content of the metadata's section."""

    def read(offset: int, size: int) -> bytes:
        if size > MOST_BYTES or offset + size > total:
            raise _Damaged("it is cut off or damaged")
        file.seek(offset)
        return file.read(size)

    if file.read(len(ELF64_LITTLE_ENDIAN)) != ELF64_LITTLE_ENDIAN:
        raise _Damaged("it is no 64-bit ELF file")
    _, _, machine, _, _, _, place, _, _, _, _, size, count, names_index = HEADER.unpack(read(0, HEADER.size))
    if size != SECTION_HEADER.size or not names_index < count <= MOST_SECTIONS:
        raise _Damaged("it is cut off or damaged")
    sections = list(SECTION_HEADER.iter_unpack(read(place, count * size)))
    names = read(*sections[names_index][4:6])
    for name_place, _, _, _, offset, length, *_ in sections:
        if names[name_place : name_place + len(SECTION) + 1] == SECTION + b"\0":
            return ARCHITECTURES.get(machine, f"architecture {machine}"), read(offset, length).rstrip(b"\0")
    raise _Damaged(f"it has no section {SECTION.decode()}")


def check_machine(library: LibraryFile) -> None:
    """Raise LibraryRefused if this machine cannot run the library."""
    machine = OTHER_NAMES.get(platform.machine(), platform.machine())
    if library.architecture != machine:
        raise LibraryRefused(f"{library.path} is for {library.architecture}, and this machine is {machine}")
    kind = library.meta["target"].get("kind")
    if kind != "llvm":
        raise LibraryRefused(
            f"{library.path} is for {kind!s:.20}, and mallorn-runtime runs libraries for CPUs: call it with "
            "apache-tvm, as the run.py does that `mallorn compile` writes"
        )
    flags = _cpu_flags()
    lacking = [name for name in library.meta["cpu_features"] if flags and name not in flags]
    if lacking:
        raise LibraryRefused(
            f"{library.path} needs CPU features that this machine lacks: {', '.join(map(str, lacking))}; "
            "tune or compile the model for this machine"
        )


def _cpu_flags() -> frozenset[str]:
    """Return the CPU features that the kernel lists; empty if it lists none."""
    try:
        text = PROCESSORS.read_text()
    except OSError:
        return frozenset()
    lines = (line.partition(":") for line in text.splitlines())
    return next((frozenset(flags.split()) for name, _, flags in lines if name.strip() in FLAGS), frozenset())
