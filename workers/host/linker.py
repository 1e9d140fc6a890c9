"""Link libraries without a compiler driver if possible: drivers take 4 times as long."""

import errno
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mallorn.core.errors import HostFault, StorageFull
from mallorn.core.os_errors import explain_os_error
from mallorn.core.registry import list_kinds
from mallorn.core.targets import NATIVE

INSTALL: Final = "apt-get install gcc"
MOST_CHARS: Final = 600  # of a linker's words that are kept
LEAST_FREE_BYTES: Final = 1 << 20
INSTALL_CROSS: Final = "pip install ziglang"
_LLD = ("ld.lld",)  # it links for all of LLVM's instruction sets
_LINKERS = (*_LLD, "ld")
_NO_PROGRAM: Final = frozenset({errno.ENOENT, errno.EACCES, errno.ENOEXEC})
_DRIVERS = ("cc", "gcc", "clang", "c++", "g++")


class NoLinker(HostFault):
    """No linker and no C compiler is installed; TVM needs one to make libraries."""


def emulations() -> Mapping[str, str]:
    """Return what linkers call the instruction sets of the kinds of CPUs."""
    return {name: text for kind in list_kinds() for name, text in kind.instruction_sets.items()}


@lru_cache(maxsize=8)
def link_command(instruction_set: str = NATIVE) -> tuple[str, ...]:
    """Return the command that links for an instruction set, without output and inputs: the
    host's own for its own and for accelerators, else lld, zig's, or the GNU cross linker.
    Raises NoLinker."""
    known = emulations()
    is_own = instruction_set not in known or instruction_set == platform.machine()
    emulation = known.get(platform.machine() if is_own else instruction_set)
    options = ("-m", emulation, "-shared") if emulation else ("-shared",)
    for name in _LINKERS if is_own else _LLD:
        if path := shutil.which(name):
            return (path, *options)
    if is_own:
        if path := find_c_compiler():
            return (path, "-shared", "-fPIC")
        raise NoLinker(hint=INSTALL)
    if emulation and (path := _find_numbered_lld()):
        return (path, *options)
    if emulation and (zig := find_zig()):
        return (zig, "ld.lld", *options)
    if path := shutil.which(f"{instruction_set}-linux-gnu-ld"):
        return (path, *options)
    raise NoLinker(f"this host has no linker for {instruction_set}", hint=INSTALL_CROSS)


def _find_numbered_lld() -> str | None:
    """Return the newest `ld.lld-NUMBER` on PATH: Debian's packages lld-NUMBER install only that."""
    folders = map(Path, os.environ.get("PATH", os.defpath).split(os.pathsep))
    names = {path.name for folder in folders for path in folder.glob("ld.lld-*")}
    versions = {name: name.rpartition("-")[2] for name in names}
    numbered = [name for name in names if versions[name].isdigit()]
    newest = sorted(numbered, key=lambda name: int(versions[name]), reverse=True)
    return next(filter(None, map(shutil.which, newest)), None)


def find_zig() -> str | None:
    """Return the program `zig` of the package ziglang, or None if it is not installed."""
    spec = find_spec("ziglang")
    folders = spec.submodule_search_locations if spec else None
    return shutil.which("zig", path=os.pathsep.join(folders or ())) if folders else None


def find_c_compiler() -> str | None:
    programs = filter(None, (os.environ.get("CC"), *_DRIVERS))
    return next(filter(None, map(shutil.which, programs)), None)


def link_shared(
    output: str,
    objects: Sequence[str],
    options: Sequence[str] | None = None,
    *,
    instruction_set: str = NATIVE,
    command: Sequence[str] = (),
    **_: Any,
) -> None:
    """Link a library for an instruction set, as TVM's `export_library` asks; `command`
    links in place of `link_command`.

    Raises HostFault, also if the linker refuses the objects: with `-shared` undefined
    symbols are no error, so a candidate does not cause it."""
    linker = (*command, "-shared") if command else link_command(instruction_set)
    words = [*linker, "-o", output, *objects, *(options or ())]
    try:
        process = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except OSError as error:
        link_command.cache_clear()
        hint = INSTALL if instruction_set == NATIVE else INSTALL_CROSS
        message = f"cannot run the linker {words[0]}: {error.strerror}"
        if error.errno in _NO_PROGRAM:
            raise HostFault(message, hint=hint) from error
        raise explain_os_error(error) or HostFault(message, hint="ulimit -a; free -h") from error
    if process.returncode != 0:
        raise_if_disk_unusable(Path(output).absolute().parent)
        cause = (process.stdout.strip() or f"exit status {process.returncode}")[-MOST_CHARS:]
        message = f"the linker cannot link a shared library for {instruction_set}: {cause}"
        raise HostFault(message, hint=" ".join([*linker[:-1], "--version"]))


def linker_for(instruction_set: str) -> Callable[..., None]:
    """Return `link_shared` for an instruction set, as TVM's `export_library` takes it."""
    link = partial(link_shared, instruction_set=instruction_set)
    link.output_format = "so"  # type: ignore[attr-defined]
    return link


def prepare_linking() -> None:
    """Link once in advance if a compiler driver links: zig's first link takes as long as
    100 others. Call it before a candidate's time limit starts. Errors are ignored, since
    the next link reports them."""
    with suppress(HostFault):
        if Path(link_command()[0]).name not in _LINKERS:
            with TemporaryDirectory() as folder:
                check_linking(Path(folder))


def check_linking(folder: Path, instruction_set: str = NATIVE) -> str:
    """Link an empty library in `folder` and return the command. Raises HostFault."""
    archive, library = folder / "nothing.a", folder / "nothing.so"
    archive.write_bytes(b"!<arch>\n")
    link_shared(str(library), [str(archive)], instruction_set=instruction_set)
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        message = f"{folder.parent} is mounted noexec, and kernels are loaded from there"
        raise HostFault(message, hint="export TMPDIR=DIR   (a folder on another file system)")
    return " ".join(link_command(instruction_set))


def raise_if_disk_unusable(folder: Path) -> None:
    """Raise StorageFull if the disk of `folder` is full, HostFault if it is not writable."""
    if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
        raise StorageFull(f"the disk of {folder} is full", hint="df -h   (then: mallorn resume JOB)")
    if not os.access(folder, os.W_OK):
        raise HostFault(f"{folder} cannot be written", hint=f"ls -ld {folder}")


link_shared.output_format = "so"  # type: ignore[attr-defined]
