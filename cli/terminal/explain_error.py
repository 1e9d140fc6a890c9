"""Turns errors from outside Mallorn (files, settings, missing packages) into MallornErrors."""

import errno
from typing import Final

from pydantic import ValidationError

from mallorn.core.errors import InvalidRequest, MallornError
from mallorn.core.install_command import MissingPackage, install_line
from mallorn.core.settings import Settings

OURS: Final = frozenset(
    {"mallorn", "graphc", "cli", "stack", "services", "workers", "research", "searchers", "costmodels", "db"}
)
HINTS: Final = {
    errno.ENOSPC: "df -h",
    errno.EDQUOT: "df -h",
    errno.EACCES: "ls -ld {file}",
    errno.EPERM: "ls -ld {file}",
    errno.EROFS: "choose a place that can be written",
    errno.ENOENT: "ls {file}",
}
#: Errors that a user's environment may cause in any command.
MISTAKES: Final = (ModuleNotFoundError, OSError, ValidationError)


def explained(error: Exception) -> MallornError | None:
    """Return the error with a message and a hint; None for a bug of ours, which needs a traceback."""
    match error:
        case ModuleNotFoundError():
            return missing_package(error)
        case OSError():
            return _file_error(error)
        case ValidationError():
            return _setting_error(error)
    return None


def missing_package(error: ModuleNotFoundError, extras: str = "server,worker") -> MissingPackage | None:
    """Return an error whose hint installs the missing package; None for Mallorn's own modules."""
    if error.name is None or error.name.partition(".")[0] in OURS:
        return None
    return MissingPackage(f"this needs {error.name}, which is not installed", hint=install_line(extras))


def _file_error(error: OSError) -> MallornError | None:
    """Return an error for a file that cannot be used; None for errors that name no file."""
    if error.strerror is None or (error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT)):
        return None
    file = str(error.filename) if error.filename is not None else "a file"
    hint = HINTS.get(error.errno or 0, "").format(file=file)
    return InvalidRequest(f"cannot use {file}: {error.strerror}", hint=hint)


def _setting_error(error: ValidationError) -> MallornError | None:
    if error.title != Settings.__name__:
        return None
    first = error.errors(include_url=False, include_context=False)[0]
    names = [f"MALLORN_{str(part).upper()}" for part in first["loc"][:1]]
    reason = first["msg"].removeprefix("Value error, ")
    if not names:
        hint = "choose another place with --data DIR or MALLORN_DATA_DIR"
        return InvalidRequest(f"the settings cannot be used: {reason}", hint=hint)
    return InvalidRequest(
        f"the setting {names[0]} cannot be {first['input']!r}: {reason}", hint=f"unset {names[0]}"
    )
