"""Errors of calls into child processes: their JSON form, one retry, and advice to the user."""

import json
import logging
import signal
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mallorn.core import errors
from mallorn.core.errors import MallornError, StorageFull
from mallorn.core.os_errors import FULL, reports_too_many_files, too_many_files_error
from mallorn.core.redaction import redact

if TYPE_CHECKING:  # children import this module and have no settings
    from mallorn.core.settings import Settings

MESSAGE_LIMIT: Final = 4000
_TEXTS: Final = ("kind", "message", "hint")
log = logging.getLogger(__name__)
T = TypeVar("T")
_GIB: Final = 1024**3
# Messages of C++, Python and the system when a process reaches its memory limit.
_NO_MEMORY: Final = ("bad_alloc", "MemoryError", "Cannot allocate memory")


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
    """The host or a user killed a helper process with SIGKILL; its work may not be the cause."""


class ChildOutOfMemory(ChildCrashed):
    """The kernel killed a helper process because its work took too much memory."""


class ChildNotStarted(ChildCrashed):
    """A helper process never became ready; its work is not the cause."""


#: Errors attributed to the host, not to the requested work.
HOSTS_DOING: Final = (ChildKilled, ChildOutOfMemory, ChildNotStarted, ChildStarved)


class ChildFailed(ChildError):
    """A helper process raised an exception; `kind` is the name of its class."""

    def __init__(self, kind: str, message: str, *, hint: str = "") -> None:
        self.kind = kind
        super().__init__(f"{kind}: {message}" if message else kind, hint=hint)


def pack_error(error: Exception) -> dict[str, Any]:
    """Return the JSON fields with which a child sends an exception to its parent."""
    if isinstance(error, ChildFailed):
        message = error.message.removeprefix(f"{error.kind}: ")
        return {"kind": error.kind, "message": message, "hint": error.hint}
    if isinstance(error, OSError) and error.errno in FULL:
        # A child writes to the temporary directory, unless the error names another file.
        error = StorageFull(f"the disk of {error.filename or tempfile.gettempdir()} is full")
    elif not isinstance(error, MallornError) and reports_too_many_files(str(error)):
        error = too_many_files_error()
    if isinstance(error, MallornError):
        # The nearest base class in mallorn.core.errors: the parent may lack the child's own classes.
        base_class = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
        fields = {"message": error.message, "hint": error.hint, "suggest": error.suggest}
        return {"kind": base_class.__name__, **fields}
    # TVM appends long native backtraces; the beginning says what went wrong.
    return {"kind": type(error).__name__, "message": str(error)[:MESSAGE_LIMIT], "hint": ""}


def unpack_error(body: bytes) -> MallornError:
    """Return the error to raise: of its class in mallorn.core.errors, else ChildFailed. A
    child with untrusted code may send any text: it is truncated, secrets are redacted."""
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


def retry_after_crash(work: Callable[[], T]) -> T:
    """Return the result of `work`; call it a second time if its helper process crashed."""
    try:
        return work()
    except ChildCrashed as error:
        log.warning("once more: %s", error)
        return work()


def is_out_of_memory(error: ChildError) -> bool:
    """Return whether the error's message says that the process reached its memory limit."""
    return any(words in error.message for words in _NO_MEMORY)


def suggest_next_step(error: ChildError, config: "Settings") -> str:
    """Return what the user can try next: the error's own hint, else one for its class."""
    if error.hint:
        return error.hint
    if isinstance(error, ChildTimeout):
        limit_sec = 2 * config.import_timeout_sec
        return f"the host is slow or busy; more time to import: MALLORN_IMPORT_TIMEOUT_SEC={limit_sec:.0f}"
    if isinstance(error, ChildOutOfMemory):
        return "give the worker (its container, its group) more memory, or start it with MALLORN_BUILDERS=1"
    if isinstance(error, ChildKilled):
        return "most likely the host ran out of memory: start the worker with MALLORN_BUILDERS=1"
    if isinstance(error, ChildCrashed) and is_out_of_memory(error):
        limit_bytes = config.child_memory_bytes
        return (
            f"a compiler may use {limit_bytes / _GIB:.0f} GiB of address space: start the worker with "
            f"MALLORN_CHILD_MEMORY_BYTES={2 * limit_bytes}"
        )
    return ""
