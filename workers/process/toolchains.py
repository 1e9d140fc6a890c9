"""Toolchains of this host: its compilers and linkers for kinds of hardware."""

import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from mallorn.core.errors import HostFault
from mallorn.core.targets import CUDA, NATIVE
from mallorn.workers.host.linker import link_command

INSTRUCTION_SETS: Final = ("aarch64", "riscv64", "x86_64")


@cache
def missing_tools() -> Mapping[str, str]:
    """Return by toolchain what this host lacks to build with it; empty: nothing."""
    from mallorn.workers.tvm.cuda.compile_cuda import find_toolchain

    lacks_cuda = "; ".join(f"{tool} ({command})" for tool, command in find_toolchain().missing)
    others = {name: _missing_linker(name) for name in INSTRUCTION_SETS if name != platform.machine()}
    return {NATIVE: "", platform.machine(): "", CUDA: lacks_cuda, **others}


def _missing_linker(instruction_set: str) -> str:
    """Return what is missing to link for another instruction set than this host's."""
    with suppress(HostFault):
        if Path(link_command()[0]).name == "ld.lld":  # it links for all of LLVM's
            return ""
    return f"a linker for {instruction_set} (apt-get install lld)"
