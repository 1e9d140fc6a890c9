"""Link libraries without a compiler driver if possible: drivers take 4 times as long."""

import errno
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mallorn.core.errors import HostFault, StorageFull
from mallorn.core.os_errors import explain_os_error

INSTALL: Final = "apt-get install gcc"
LEAST_FREE_BYTES: Final = 1 << 20
_LINKERS = ("ld.lld", "ld")
_NO_PROGRAM: Final = frozenset({errno.ENOENT, errno.EACCES, errno.ENOEXEC})
_DRIVERS = ("cc", "gcc", "clang", "c++", "g++")


class NoLinker(HostFault):
    """No linker and no C compiler is installed; TVM needs one to make libraries."""


class LinkError(RuntimeError):
    """Raised when the linker refuses the objects."""


@lru_cache(maxsize=1)
def link_command() -> tuple[str, ...]:
    """Return the command that links, without output and inputs. Raises NoLinker."""
    for name in _LINKERS:
        if path := shutil.which(name):
            return (path, "-shared")
    if path := find_c_compiler():
        return (path, "-shared", "-fPIC")
    raise NoLinker(hint=INSTALL)


def find_c_compiler() -> str | None:
    programs = filter(None, (os.environ.get("CC"), *_DRIVERS))
    return next(filter(None, map(shutil.which, programs)), None)


def link_shared(
    output: str,
    objects: Sequence[str],
    options: Sequence[str] | None = None,
    *,
    command: Sequence[str] = (),
    **_: Any,
) -> None:
    """Link a library, as TVM's `export_library` asks; with `command` for another CPU.
    Raises LinkError, HostFault."""
    linker = (*command, "-shared") if command else link_command()
    words = [*linker, "-o", output, *objects, *(options or ())]
    try:
        process = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except OSError as error:
        link_command.cache_clear()
        message = f"cannot run the linker {words[0]}: {error.strerror}"
        if error.errno in _NO_PROGRAM:
            raise HostFault(message, hint=INSTALL) from error
        raise explain_os_error(error) or HostFault(message, hint="ulimit -a; free -h") from error
    if process.returncode != 0:
        raise_if_disk_unusable(Path(output).absolute().parent)
        raise LinkError(f"{' '.join(words)}\n{process.stdout.strip()}")


def prepare_linking() -> None:
    """Link once in advance if a compiler driver links: zig's first link takes as long as
    100 others. Call it before a candidate's time limit starts. Errors are ignored, since
    the next link reports them."""
    with suppress(HostFault):
        if Path(link_command()[0]).name not in _LINKERS:
            with TemporaryDirectory() as folder:
                check_linking(Path(folder))


def check_linking(folder: Path) -> str:
    """Link an empty library in `folder` and return the command. Raises HostFault."""
    archive, library = folder / "nothing.a", folder / "nothing.so"
    archive.write_bytes(b"!<arch>\n")
    try:
        link_shared(str(library), [str(archive)])
    except LinkError as error:
        raise HostFault(f"the linker cannot link a shared library: {error}", hint=INSTALL) from None
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        message = f"{folder.parent} is mounted noexec, and kernels are loaded from there"
        raise HostFault(message, hint="export TMPDIR=DIR   (a folder on another file system)")
    return " ".join(link_command())


def raise_if_disk_unusable(folder: Path) -> None:
    """Raise StorageFull if the disk of `folder` is full, HostFault if it is not writable."""
    if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
        raise StorageFull(f"the disk of {folder} is full", hint="df -h   (then: mallorn resume JOB)")
    if not os.access(folder, os.W_OK):
        raise HostFault(f"{folder} cannot be written", hint=f"ls -ld {folder}")


link_shared.output_format = "so"  # type: ignore[attr-defined]
