"""The contract of a kind of hardware on hosts that build for it, without TVM."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Requirement(NamedTuple):
    """What a host needs for a kind of hardware, as `mallorn doctor` and `mallorn check` tell it."""

    name: str
    is_met: bool
    words: str
    command: str = ""  # that installs it
    is_necessary: bool = True


class BuilderKind:
    """The tools with which a host builds for a kind of hardware; here those of the host's own CPU."""

    def missing_tools(self) -> str:
        """Return what this host lacks to build for it, with the commands that install it."""
        return ""

    def tool_versions(self) -> Mapping[str, tuple[str, int]]:
        """Return its own compilers by name, each with the line of its `--version` that counts."""
        return {}

    def requirements(self, has_device: bool) -> Iterator[Requirement]:
        """Yield what a host needs that builds for it, and if `has_device`, that measures on it."""
        yield from ()
