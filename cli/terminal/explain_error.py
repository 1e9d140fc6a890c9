"""Conversion of errors of files, settings and imports to MallornError, with hints."""

import errno
from typing import Final

from pydantic import ValidationError

from mallorn.core.errors import InvalidRequest, MallornError
from mallorn.core.installation import MissingPackage, missing_package
from mallorn.core.settings import Settings

OURS: Final = "mallorn"
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


def explain_error(error: Exception) -> MallornError | None:
    """Return the error with a hint; None for bugs in Mallorn, which need a traceback."""
    if isinstance(error, ModuleNotFoundError):
        return explain_missing_package(error)
    if isinstance(error, OSError) and error.strerror is not None:
        file = "a file" if error.filename is None else str(error.filename)
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return None
        hint = HINTS.get(error.errno or 0, "").format(file=file)
        return MallornError(f"cannot use {file}: {error.strerror}", hint=hint)
    if isinstance(error, ValidationError) and error.title == Settings.__name__:
        first = error.errors(include_url=False, include_context=False)[0]
        reason = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            hint = "choose another place with --data DIR or MALLORN_DATA_DIR"
            return InvalidRequest(f"the settings cannot be used: {reason}", hint=hint)
        name = f"MALLORN_{str(first['loc'][0]).upper()}"
        message = f"the setting {name} cannot be {first['input']!r}: {reason}"
        return InvalidRequest(message, hint=f"unset {name}")
    return None


def explain_missing_package(
    error: ModuleNotFoundError, extras: str = "server,worker"
) -> MissingPackage | None:
    """Return an error with the pip command for a package; None for Mallorn's own modules."""
    if error.name is None or error.name.partition(".")[0] == OURS:
        return None
    return missing_package(f"this needs {error.name}, which is not installed", extras)
