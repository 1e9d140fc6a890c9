"""Toolchains of this host: its compilers and linkers for kinds of hardware."""

import platform
from collections.abc import Mapping
from functools import cache

from mallorn.core.targets import CUDA, NATIVE
from mallorn.workers.host.linker import EMULATIONS, INSTALL_CROSS, find_zig, link_command


@cache
def missing_tools() -> Mapping[str, str]:
    """Return by toolchain what this host lacks to build with it; empty: nothing."""
    from mallorn.workers.tvm.cuda.compile_cuda import find_toolchain

    lacks_cuda = "; ".join(f"{tool} ({command})" for tool, command in find_toolchain().missing)
    others = {name: _missing_linker(name) for name in EMULATIONS if name != platform.machine()}
    return {NATIVE: "", platform.machine(): "", CUDA: lacks_cuda, **others}


def describe_cross_linkers() -> str:
    """Return which linker this host uses for each other instruction set, or what installs one."""
    others = [name for name in EMULATIONS if name != platform.machine()]
    lacks = {name: _missing_linker(name) for name in others}
    words = {name: f"needs {lacks[name]}" if lacks[name] else link_command(name)[0] for name in others}
    return "; ".join(f"{name}: {text}" for name, text in words.items())


def _missing_linker(instruction_set: str) -> str:
    """Return what is missing to build for another instruction set: zig, which also compiles C."""
    return "" if find_zig() else f"zig for {instruction_set} ({INSTALL_CROSS})"
