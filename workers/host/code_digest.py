"""A digest of all code that affects generated code, to avoid reusing results of other code.

Parents of child processes compute it, too, so nothing here loads TVM. It covers compiler
flags, since they are written in our source files.
"""

import os
import subprocess
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

from mallorn.core.errors import CodeReplaced, HostFault
from mallorn.core.registry import list_kinds
from mallorn.core.targets import NATIVE
from mallorn.graphc.export.zip_graphc import digest
from mallorn.workers.host.builder_kind import BuilderKind
from mallorn.workers.host.linker import emulations, find_c_compiler, link_command
from mallorn.workers.subprocesses.typed_method import Served

CHARS: Final = 12
VARIABLE: Final = "MALLORN_CODE"
TVM_VERSION: Final = version("apache-tvm")
ABSENT: Final = "absent"
_PACKAGES: Final = ("mallorn.graphc", "mallorn.workers.tvm", "mallorn.workers.features", "mallorn.kinds")
_TOOLS: Final = frozenset({"compiler", "linker"})  # of every host: names in `code_parts`
_WHEELS: Final = ("apache-tvm", "apache-tvm-ffi")


def code_digest() -> str:
    """Return a short hash of `code_parts` without tools: of the code that makes tasks."""
    return _short_hash(
        {name: part for name, part in code_parts().items() if name not in _TOOLS and name not in _own_tools()}
    )


def current_code_name() -> str:
    """Return the name of the code on which features and measured peak rates depend."""
    return f"{TVM_VERSION}+{code_digest()}"


def current_builder_name(toolchain: str = NATIVE) -> str:
    """Return the name, stored with results, of the code and the tools that build candidates."""
    own = {name for name, owner in _own_tools().items() if owner == toolchain}
    tools = {name: part for name, part in code_parts().items() if name in _TOOLS | own}
    if toolchain in emulations():
        tools["linker"] = _linker_version(toolchain)
    return f"{current_code_name()}.{_short_hash(tools)}"


def is_code_of(code: str, builder: str) -> bool:
    """Return whether a builder of this name has the code with this digest."""
    return builder.partition("+")[2].partition(".")[0] == code


@cache
def code_parts() -> Mapping[str, str]:
    """Return digests and versions of everything that affects generated code, by name: our
    packages, TVM, the C compiler, the linker, and kinds' own compilers. The result is cached."""
    tools = {"compiler": _version_of(find_c_compiler()), "linker": _linker_version(NATIVE)}
    for kind in list_kinds():
        for name, (program, line) in kind.part(BuilderKind).tool_versions().items():
            tools[name] = _version_of(program, line)
    return source_parts() | tools


@cache
def _own_tools() -> Mapping[str, str]:
    """Return the toolchain of each tool that only one has."""
    return {tool: kind.name for kind in list_kinds() for tool in kind.part(BuilderKind).tool_versions()}


def source_parts() -> dict[str, str]:
    """Return the digests of our packages and the versions of TVM's wheels, by name."""
    sources = {name: digest(name)[:CHARS] for name in _PACKAGES}
    return sources | {name: version(name) for name in _WHEELS}


def store_source_digest() -> None:
    """Store our source files' digest in the environment, for `have_sources_changed`."""
    os.environ[VARIABLE] = _short_hash(source_parts())


def have_sources_changed() -> bool:
    """Return whether sources changed since this process (or its parent) stored a digest."""
    digest.cache_clear()
    return VARIABLE in os.environ and os.environ[VARIABLE] != _short_hash(source_parts())


def refuse_if_code_changed(methods: Served) -> Served:
    """Return a child process's methods. If source files have changed since its parent
    called `store_source_digest`, return methods that raise CodeReplaced."""

    def raise_code_replaced(_params: bytes) -> bytes:
        raise CodeReplaced

    return dict.fromkeys(methods, raise_code_replaced) if have_sources_changed() else methods


def _short_hash(parts: Mapping[str, str]) -> str:
    return sha256(repr(sorted(parts.items())).encode()).hexdigest()[:CHARS]


@cache
def _linker_version(toolchain: str) -> str:
    try:
        program, *options = link_command(toolchain)
    except HostFault:
        return ABSENT
    return _version_of(program, 0, *options)


def _version_of(program: str | None, line: int = 0, *options: str) -> str:
    """Return a program's name and one line of its `--version`, by default the first."""
    if program is None:
        return ABSENT
    try:
        process = subprocess.run(
            [program, *options, "--version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError:  # a program that cannot run generates no code
        return ABSENT
    lines = process.stdout.strip().splitlines() or [""]
    return f"{Path(program).name} {lines[line].strip()}"
