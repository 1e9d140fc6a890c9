"""Errors of calls into child processes, and their JSON form for crossing the process border."""

import json
import signal
import tempfile
from typing import Any, Final

from mallorn.core import errors
from mallorn.core.errors import MallornError, StorageFull
from mallorn.core.os_errors import FULL, lacks_handles, no_handle
from mallorn.core.redaction import redact

MESSAGE_LIMIT: Final = 4000


class ChildError(MallornError):
    """A helper process did not answer as it should."""


class ChildTimeout(ChildError):
    """A helper process took too long and was killed."""


class ChildStarved(ChildTimeout):
    """A helper process took too long, and waited for a processor longer than it ran."""


class ChildCrashed(ChildError):
    """A helper process died in the middle of a call; `died_of` is the signal that ended it, if one did."""

    def __init__(self, message: str, *, died_of: signal.Signals | None = None) -> None:
        self.died_of = died_of
        super().__init__(message)


class ChildKilled(ChildCrashed):
    """A helper process got a SIGKILL, which only the host and its users send: what it did may be innocent."""


class ChildOutOfMemory(ChildCrashed):
    """A helper process got a SIGKILL from the kernel, for want of memory: what it did took too much."""


class ChildNotStarted(ChildCrashed):
    """A helper process never became ready: what it would have done is not to blame."""


#: Errors attributed to the host, not to the requested work.
HOSTS_DOING: Final = (ChildKilled, ChildOutOfMemory, ChildNotStarted, ChildStarved)


class ChildFailed(ChildError):
    """A helper process raised an exception; `kind` is the name of its class."""

    def __init__(self, kind: str, message: str, *, hint: str = "") -> None:
        self.kind = kind
        super().__init__(f"{kind}: {message}" if message else kind, hint=hint)


_TEXTS: Final = ("kind", "message", "hint")


def pack_error(error: Exception) -> dict[str, Any]:
    """Return the JSON fields by which an exception crosses the process border."""
    if isinstance(error, ChildFailed):
        return {
            "kind": error.kind,
            "message": error.message.removeprefix(f"{error.kind}: "),
            "hint": error.hint,
        }
    if isinstance(error, OSError) and error.errno in FULL:
        # A child writes to the temporary directory, unless the error names another file.
        error = StorageFull(f"the disk of {error.filename or tempfile.gettempdir()} is full")
    elif not isinstance(error, MallornError) and lacks_handles(str(error)):
        error = no_handle()
    if isinstance(error, MallornError):
        # The nearest base class in mallorn.core.errors: the parent may lack the child's own classes.
        base_class = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
        fields = {"message": error.message, "hint": error.hint, "suggest": error.suggest}
        return {"kind": base_class.__name__, **fields}
    # TVM appends long native backtraces; the beginning says what went wrong.
    return {"kind": type(error).__name__, "message": str(error)[:MESSAGE_LIMIT], "hint": ""}


def unpack_error(body: bytes) -> MallornError:
    """Return the error to raise in the parent: its class in mallorn.core.errors, else ChildFailed.

    A child that runs untrusted code may send any text: texts are truncated, secrets redacted.
    """
    try:
        fields = json.loads(body)
        kind, message, hint = (redact(str(fields[name])[:MESSAGE_LIMIT]) for name in _TEXTS)
        suggest = fields.get("suggest")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return ChildFailed("NoError", "a helper process sent an error that cannot be read")
    if not isinstance(suggest, dict) or len(str(suggest)) > MESSAGE_LIMIT:
        suggest = None
    error_class = getattr(errors, kind, None)
    if isinstance(error_class, type) and issubclass(error_class, MallornError):
        return error_class(message, hint=hint, suggest=suggest)
    return ChildFailed(kind, message, hint=hint)
