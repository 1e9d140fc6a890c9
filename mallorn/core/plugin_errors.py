"""Attribution of exceptions to the plugin (such as a searcher) whose code raised them."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from mallorn.core.errors import HostFault, MallornError, PluginFailed
from mallorn.core.os_errors import os_error
from mallorn.core.registry import WORDS, resolve


class Part(NamedTuple):
    """A plugin that a job chose: the job option (`seam`) that names it, and its name."""

    seam: str
    name: str

    def __str__(self) -> str:
        return f"{WORDS.get(self.seam, self.seam)} {self.name}"


HINT: Final = "mend it, start its workers again, and submit the model again: what was measured is reused"


@contextmanager
def blame_plugins(*parts: tuple[str, str]) -> Iterator[None]:
    """Raise PluginFailed, with file and line, for an exception from one of these (seam, name).

    A MallornError, and an exception whose traceback contains no code of theirs, passes
    unchanged. Raises HostFault if the host has no file handle or memory left.
    """
    try:
        yield
    except (MallornError, KeyboardInterrupt):
        raise
    except BaseException as error:  # plugin code may raise anything, even SystemExit
        host_error = os_error(error) if isinstance(error, OSError) else None
        if isinstance(host_error, HostFault):  # for example, a child could not start
            raise host_error from error
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            owners = (Part(*part) for part in parts if frame.filename in _files(*part))
            if (part := next(owners, None)) is not None:
                description = f"{type(error).__name__}: {error}".removesuffix(": ")
                raise PluginFailed(
                    f"the {part} raised {description} ({frame.filename}, line {frame.lineno})",
                    hint=HINT,
                    seam=part.seam,
                    name=part.name,
                ) from error
        raise


def _files(seam: str, name: str) -> set[str | None]:
    """Return the source files of a plugin and its base classes; empty if it does not load."""
    try:
        plugin = resolve(seam, name)
    except MallornError:
        return set()
    modules = {getattr(each, "__module__", "") for each in getattr(plugin, "__mro__", (plugin,))}
    return {getattr(sys.modules.get(module), "__file__", None) for module in modules - {"builtins", "abc"}}
