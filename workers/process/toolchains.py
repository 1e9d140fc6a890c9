"""Toolchains of this host: its compilers and linkers for kinds of hardware."""

import platform
from collections.abc import Mapping
from functools import cache

from mallorn.core.registry import list_kinds
from mallorn.core.targets import NATIVE
from mallorn.workers.host.builder_kind import BuilderKind
from mallorn.workers.host.linker import INSTALL_CROSS, emulations, find_zig, link_command


@cache
def missing_tools() -> Mapping[str, str]:
    """Return by toolchain what this host lacks to build with it; empty: nothing."""
    accelerators = [kind for kind in list_kinds() if not kind.runs_on_cores]
    lacks = {kind.name: kind.part(BuilderKind).missing_tools() for kind in accelerators}
    return {NATIVE: "", platform.machine(): "", **lacks, **other_instruction_sets()}


def other_instruction_sets() -> Mapping[str, str]:
    """Return what this host lacks to link for each instruction set but its own; empty: nothing."""
    has_zig, others = find_zig() is not None, sorted(emulations().keys() - {platform.machine()})
    return {name: "" if has_zig else f"zig for {name} ({INSTALL_CROSS})" for name in others}


def describe_cross_linkers() -> str:
    """Return which linker this host uses for each other instruction set, or what installs one."""
    others = other_instruction_sets().items()
    words = {name: f"needs {lacks}" if lacks else link_command(name)[0] for name, lacks in others}
    return "; ".join(f"{name}: {text}" for name, text in words.items())
