"""Links libraries with the linker itself where there is one: a compiler driver takes four times as long."""

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
from mallorn.core.os_errors import os_error

INSTALL: Final = "apt-get install gcc"
LEAST_FREE_BYTES: Final = 1 << 20
_LINKERS = ("ld.lld", "ld")
_NO_PROGRAM: Final = frozenset({errno.ENOENT, errno.EACCES, errno.ENOEXEC})
_DRIVERS = ("cc", "gcc", "clang", "c++", "g++")


class NoLinker(HostFault):
    """No linker and no C compiler is installed; TVM needs one to make libraries."""


class LinkError(RuntimeError):
    """The linker refused the objects."""


@lru_cache(maxsize=1)
def link_command() -> tuple[str, ...]:
    """The command that links objects to a shared library, but for its output and its inputs."""
    for name in _LINKERS:
        if path := shutil.which(name):
            return (path, "-shared")
    if path := compiler():
        return (path, "-shared", "-fPIC")
    raise NoLinker(hint=INSTALL)


def compiler() -> str | None:
    """A C compiler, where one is installed."""
    named = filter(None, (os.environ.get("CC"), *_DRIVERS))
    return next(filter(None, map(shutil.which, named)), None)


def link_shared(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
    """Link objects to a shared library; the signature is that of `fcompile` in TVM's `export_library`."""
    command = [*link_command(), "-o", output, *objects, *(options or ())]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except OSError as error:
        link_command.cache_clear()
        words = f"cannot run the linker {command[0]}: {error.strerror}"
        if error.errno in _NO_PROGRAM:
            raise HostFault(words, hint=INSTALL) from error
        raise os_error(error) or HostFault(words, hint="ulimit -a; free -h") from error
    if done.returncode != 0:
        blame_the_host(Path(output).absolute().parent)
        raise LinkError(f"{' '.join(command)}\n{done.stdout.strip()}")


def prepare_linking() -> None:
    """Have a compiler driver make what all links need, before any candidate's time runs: zig's first takes
    as long as a hundred others. What it lacks is said by whoever links next.
    """
    with suppress(HostFault):
        if Path(link_command()[0]).name not in _LINKERS:
            with TemporaryDirectory() as folder:
                check_linking(Path(folder))


def check_linking(folder: Path) -> str:
    """The command with which a library was linked in `folder`, that can be loaded. Raises HostFault."""
    nothing, library = folder / "nothing.a", folder / "nothing.so"
    nothing.write_bytes(b"!<arch>\n")
    try:
        link_shared(str(library), [str(nothing)])
    except LinkError as error:
        raise HostFault(f"the linker makes no shared library: {error}", hint=INSTALL) from None
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        message = f"{folder.parent} is mounted noexec, and kernels are loaded from there"
        raise HostFault(message, hint="export TMPDIR=DIR   (a folder on another file system)")
    return " ".join(link_command())


def blame_the_host(folder: Path) -> None:
    """Raise the reason why nothing could be written, whatever the objects were."""
    if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
        raise StorageFull(f"the disk of {folder} is full", hint="df -h   (then: mallorn resume JOB)")
    if not os.access(folder, os.W_OK):
        raise HostFault(f"{folder} cannot be written", hint=f"ls -ld {folder}")


link_shared.output_format = "so"  # type: ignore[attr-defined]
