"""Whose fault an exception is: what a searcher or a policy raised is told as such, with its line."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from mallorn.core.errors import HostFault, MallornError, PluginFailed
from mallorn.core.os_errors import os_error
from mallorn.core.registry import WORDS, resolve


class Part(NamedTuple):
    """A choice of a job: the seam and the name."""

    seam: str
    name: str

    def __str__(self) -> str:
        return f"{WORDS.get(self.seam, self.seam)} {self.name}"


HINT: Final = "mend it, start its workers again, and submit the model again: what was measured is reused"


@contextmanager
def blame_plugins(*parts: tuple[str, str]) -> Iterator[None]:
    """Raise PluginFailed for an exception that passed through the code of one of these (seam, name).

    What none of them had a hand in, and every MallornError, passes as it is. Raises HostFault where the host
    gave no handle or no memory.
    """
    try:
        yield
    except (MallornError, KeyboardInterrupt):
        raise
    except BaseException as error:  # whatever foreign code raises, sys.exit() too
        known = os_error(error) if isinstance(error, OSError) else None
        if isinstance(known, HostFault):  # a child could not start, say
            raise known from error
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            owners = (Part(*part) for part in parts if frame.filename in _files(*part))
            if (part := next(owners, None)) is not None:
                what = f"{type(error).__name__}: {error}".removesuffix(": ")
                raise PluginFailed(
                    f"the {part} raised {what} ({frame.filename}, line {frame.lineno})",
                    hint=HINT,
                    seam=part.seam,
                    name=part.name,
                ) from error
        raise


def _files(seam: str, name: str) -> set[str | None]:
    """The files of a part and of its bases; none of one that cannot be loaded: that is all it raised."""
    try:
        found = resolve(seam, name)
    except MallornError:
        return set()
    modules = {getattr(each, "__module__", "") for each in getattr(found, "__mro__", (found,))}
    return {getattr(sys.modules.get(module), "__file__", None) for module in modules - {"builtins", "abc"}}
