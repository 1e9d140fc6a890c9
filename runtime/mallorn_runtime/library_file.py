"""Read a library's metadata, and check that this machine can run it, without loading it."""

import json
import os
import platform
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

FORMAT: Final = 1  # of the metadata
SECTION: Final = b".mallorn"
MOST_BYTES: Final = 16 << 20  # of the metadata
MOST_SECTIONS: Final = 4096
HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION_HEADER: Final = struct.Struct("<IIQQQQIIQQ")
ELF64_LITTLE_ENDIAN: Final = b"\x7fELF\x02\x01"
ARCHITECTURES: Final = {62: "x86_64", 183: "aarch64", 243: "riscv64"}  # by e_machine
PROCESSORS: Final = Path("/proc/cpuinfo")
FLAGS: Final = ("flags", "Features")  # lines of x86 and of ARM
DAMAGED: Final = "it is cut off or damaged"


def escape_text(text: str) -> str:
    """Return a file's text for a terminal, with unprintable characters escaped."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class RuntimeRefusal(Exception):
    """The base of all errors that this package raises itself; each message is a sentence."""

    def __str__(self) -> str:
        return escape_text(super().__str__())


class LibraryRefused(RuntimeRefusal):
    """A file is no library that this machine and version can run; it was not loaded."""


class InputRefused(RuntimeRefusal, ValueError):
    """An input has another name, type, shape or device than the library takes."""


class OptionRefused(RuntimeRefusal, ValueError):
    """An option of a session cannot be met."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Name, data type and shape of an input or output; free dimensions have names."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {format_shape(self.shape)}"

    @property
    def fixed_shape(self) -> tuple[int, ...] | None:
        """The shape if no dimension is free, otherwise None."""
        sizes = tuple(size for size in self.shape if isinstance(size, int))
        return sizes if len(sizes) == len(self.shape) else None

    def has_shape(self, shape: tuple[int, ...]) -> bool:
        """Return whether the rank and all sizes that are not free are as in `shape`."""
        return len(shape) == len(self.shape) and all(
            isinstance(dim, str) or dim == size for dim, size in zip(self.shape, shape, strict=True)
        )


@dataclass(frozen=True, slots=True)
class LibraryFile:
    """The metadata of a library, which is not loaded."""

    path: Path
    identity: tuple[int, ...]  # differs if the file was replaced
    architecture: str
    meta: Mapping[str, object]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    ranges: Mapping[str, tuple[int, int]]  # smallest and largest size of each free dimension
    device: str  # TVM's kind of target; "llvm" is the CPU
    cpu_features: tuple[str, ...]
    threads: int  # for which it was tuned; 0: unknown


class Damaged(Exception):
    """Raised if bytes are not as the format demands."""


def format_shape(shape: Sequence[int | str]) -> str:
    """Return a shape as text, such as "(batch, 16)"."""
    return "(" + ", ".join(map(str, shape)) + ")"


def read_library_file(path: str | os.PathLike[str]) -> LibraryFile:
    """Read a library's metadata. Raises LibraryRefused if it is no library of Mallorn."""
    path = Path(path)
    try:
        # Without O_NONBLOCK a pipe would be opened only once another process writes to it.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Damaged("it is no file")
            architecture, text = find_section(file, status.st_size)
    except OSError as error:
        raise LibraryRefused(f"{path} cannot be read: {error.strerror}") from None
    except (Damaged, struct.error) as error:
        raise LibraryRefused(f"{path} is no library of Mallorn: {error}") from None
    try:
        meta: Any = json.loads(text)
        if meta["format"] != FORMAT:
            raise LibraryRefused(
                f"the metadata of {path} has format {meta['format']!r:.20}, and this version of "
                f"mallorn-runtime reads format {FORMAT}: install the version that belongs to "
                "the Mallorn that compiled it"
            )
        specs = [
            tuple(TensorInfo(str(row["name"]), str(row["dtype"]), read_shape(row)) for row in meta[key])
            for key in ("inputs", "outputs")
        ]
        return LibraryFile(
            path=path,
            identity=(status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size),
            architecture=architecture,
            meta=meta,
            inputs=specs[0],
            outputs=specs[1],
            ranges={str(dim): (int(low), int(high)) for dim, (low, high) in meta["ranges"].items()},
            device=str(meta["target"]["kind"]),
            cpu_features=tuple(map(str, meta["cpu_features"])),
            threads=int(meta.get("threads", 0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise LibraryRefused(f"the metadata of {path} is damaged: compile the library again") from None


def read_shape(row: Any) -> tuple[int | str, ...]:
    """Return a tensor's shape. Raises TypeError if it is no list of integers and names."""
    shape = row["shape"]
    if type(shape) is not list or any(type(dim) not in (int, str) for dim in shape):
        raise TypeError
    return tuple(shape)


def find_section(file: BinaryIO, total: int) -> tuple[str, bytes]:
    """Return the architecture of an ELF file, and its metadata. Raises Damaged."""

    def read(offset: int, size: int) -> bytes:
        if size > MOST_BYTES or offset + size > total:
            raise Damaged(DAMAGED)
        file.seek(offset)
        return file.read(size)

    if file.read(len(ELF64_LITTLE_ENDIAN)) != ELF64_LITTLE_ENDIAN:
        raise Damaged("it is no 64-bit ELF file")
    header = HEADER.unpack(read(0, HEADER.size))
    machine, place, (size, count, names_index) = header[2], header[6], header[-3:]
    if size != SECTION_HEADER.size or not names_index < count <= MOST_SECTIONS:
        raise Damaged(DAMAGED)
    sections = list(SECTION_HEADER.iter_unpack(read(place, count * size)))
    names = read(*sections[names_index][4:6])
    for section in sections:
        if names.startswith(SECTION + b"\0", section[0]):
            architecture = ARCHITECTURES.get(machine, f"architecture {machine}")
            return architecture, read(*section[4:6]).rstrip(b"\0")
    raise Damaged(f"it has no section {SECTION.decode()}")


def check_machine(library: LibraryFile) -> None:
    """Raise LibraryRefused if this machine cannot run the library."""
    machine = platform.machine()
    if library.architecture != machine:
        raise LibraryRefused(f"{library.path} is for {library.architecture}, and this machine is {machine}")
    if library.device != "llvm":
        raise LibraryRefused(
            f"{library.path} is for {library.device:.20}, and mallorn-runtime runs libraries for "
            "CPUs: call it with apache-tvm, as the run.py does that `mallorn compile` writes"
        )
    try:
        lines = [line.partition(":") for line in PROCESSORS.read_text().splitlines()]
    except OSError:
        return
    flags = next((words.split() for key, _, words in lines if key.strip() in FLAGS), [])
    if lacking := [name for name in library.cpu_features if flags and name not in flags]:
        raise LibraryRefused(
            f"{library.path} needs CPU features that this machine lacks: {', '.join(lacking)}; "
            "tune or compile the model for this machine"
        )
