"""Users' own classes: which ones a job may name, and whose code raised errors (ADR 0037)."""

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from mallorn.core.errors import ClassRefused, HostFault, MallornError, PluginFailed
from mallorn.core.os_errors import explain_os_error
from mallorn.core.registry import CONTRACTS, WORDS, find_plugins, list_names, resolve

if TYPE_CHECKING:  # without pydantic, batches take this module along
    from mallorn.core.job_options import JobOptions

ANY: Final = "*"


def check_allowed_classes(options: "JobOptions", plugins: Sequence[str]) -> None:
    """Raise ClassRefused for a user's class that the operator does not allow.

    Allowed are the entry points of installed packages and the operator's list `plugins`.
    """
    for seam, name in list_user_classes(options):
        installed = [word for names in find_plugins(seam).items() for word in names]
        module = name.partition(":")[0]
        if not {ANY, name, f"{module}:*"} & {*plugins, *installed}:
            names = ", ".join([*list_names(seam), *installed, *plugins])
            raise ClassRefused(
                f"the {WORDS[seam]} {name} is not allowed by the operator of this service",
                hint=f"allowed: {names}   (an operator allows more with MALLORN_PLUGINS={name})",
            )


def check_base_classes(options: "JobOptions", seams: Sequence[str]) -> None:
    """Raise ClassRefused if a user's class is installed here but has a wrong base class."""
    for seam, name in list_user_classes(options):
        if seam in seams:
            # Another worker may have the class; a round without it continues and reports that.
            with suppress(PluginFailed):
                resolve(seam, name)


def list_user_classes(options: "JobOptions") -> list[tuple[str, str]]:
    """Return (option, class name) for each job option that names a user's own class."""
    seams = [seam for seam in CONTRACTS if seam in type(options).model_fields]
    pairs = [(seam, str(getattr(options, seam))) for seam in seams]
    return [(seam, name) for seam, name in pairs if name not in list_names(seam)]


class Part(NamedTuple):
    """A user's class that a job runs: its name and `seam`, the job option that names it."""

    seam: str
    name: str

    def __str__(self) -> str:
        return f"{WORDS.get(self.seam, self.seam)} {self.name}"


HINT: Final = "repair the class, restart the workers, and submit the model again: measurements are reused"


@contextmanager
def convert_plugin_errors(*parts: tuple[str, str]) -> Iterator[None]:
    """Convert exceptions raised in users' classes, given as (option, name), to PluginFailed.

    It names file and line. A MallornError, and an exception whose traceback contains no code
    of these classes, passes unchanged. Raises HostFault if file handles or memory ran out.
    """
    try:
        yield
    except (MallornError, KeyboardInterrupt):
        raise
    except BaseException as error:  # plugin code may raise anything, even SystemExit
        host_error = explain_os_error(error) if isinstance(error, OSError) else None
        if isinstance(host_error, HostFault):  # for example, a child could not start
            raise host_error from error
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            owners = (Part(*part) for part in parts if frame.filename in _source_files(*part))
            if (part := next(owners, None)) is not None:
                description = f"{type(error).__name__}: {error}".removesuffix(": ")
                message = f"the {part} raised {description} ({frame.filename}, line {frame.lineno})"
                raise PluginFailed(message, hint=HINT, seam=part.seam, name=part.name) from error
        raise


def _source_files(seam: str, name: str) -> set[str | None]:
    try:
        plugin = resolve(seam, name)
    except MallornError:
        return set()
    modules = {getattr(cls, "__module__", "") for cls in getattr(plugin, "__mro__", (plugin,))}
    return {getattr(sys.modules.get(module), "__file__", None) for module in modules - {"builtins", "abc"}}
