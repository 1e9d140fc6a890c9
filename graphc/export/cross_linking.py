"""C compiler and linker for a target's CPU: this machine's own, or zig's from PyPI."""

import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from mallorn.graphc.export import export_checks
from mallorn.graphc.export.library_metadata import target_architecture

ZIG = "ziglang"
GLIBC = "2.28"  # the least that TVM's own wheels need
LINKABLE = ("aarch64", "x86_64")


def cross_compiler(target: Any) -> list[str]:
    """Return the command of a C compiler for the target's CPU; empty if this machine's will do.

    Raises Refused if zig is not installed, or does not link for this CPU.
    """
    architecture, host = target_architecture(target), platform.machine()
    if architecture == host:
        return []
    if architecture not in LINKABLE:
        raise export_checks.Refused(
            f"a library for {architecture} cannot be linked on {host}",
            f"compile on a machine with {architecture}; from this one: {', '.join(LINKABLE)}",
        )
    if find_spec(ZIG) is None:
        raise export_checks.Refused(
            f"to link a library for {architecture} on {host}, a linker for it is needed", f"pip install {ZIG}"
        )
    return [sys.executable, "-m", ZIG, "cc", "-target", f"{architecture}-linux-gnu.{GLIBC}"]


def link_with(command: Sequence[str]) -> Callable[..., None]:
    """Return a linker for TVM's `export_library` that compiles and links with this command."""

    def link(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
        inputs = [path for path in objects if not path.endswith(".c")]
        for source in (path for path in objects if path.endswith(".c")):
            inputs += ["-x", "c", source]  # g++ would read it as C++
        subprocess.run([*command, "-shared", "-fPIC", "-o", output, *(options or ()), *inputs], check=True)

    link.output_format = "so"  # type: ignore[attr-defined]
    return link
