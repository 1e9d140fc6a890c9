"""Links libraries with the linker itself where there is one: a compiler driver takes four times as long."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mallorn.core.errors import Unavailable

_LINKERS = ("ld.lld", "ld")
_DRIVERS = ("cc", "gcc", "clang", "c++", "g++")


class NoLinker(Unavailable):
    """No linker and no C compiler is installed; TVM needs one to make libraries."""


class LinkError(RuntimeError):
    """The linker refused the objects."""


@lru_cache(maxsize=1)
def link_command() -> tuple[str, ...]:
    """The command that links objects to a shared library, but for its output and its inputs."""
    for name in _LINKERS:
        if path := shutil.which(name):
            return (path, "-shared")
    for name in filter(None, (os.environ.get("CC"), *_DRIVERS)):
        if path := shutil.which(name):
            return (path, "-shared", "-fPIC")
    raise NoLinker(hint="apt-get install gcc")


def link_shared(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
    """Link objects to a shared library; the signature is that of `fcompile` in TVM's `export_library`."""
    command = [*link_command(), "-o", output, *objects, *(options or ())]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise LinkError(f"{' '.join(command)}\n{done.stdout.strip()}")


link_shared.output_format = "so"  # type: ignore[attr-defined]
