"""What a user may do about a helper process that died or took too long."""

from signal import Signals
from typing import Final

from mallorn.core.settings import Settings
from workers.children.errors import ChildCrashed, ChildError, ChildTimeout

_GIB: Final = 1024**3


def advice(error: ChildError, config: Settings) -> str:
    """The next thing to try; a hint of the error itself goes first."""
    if error.hint:
        return error.hint
    if isinstance(error, ChildTimeout):
        limit_sec = 2 * config.import_timeout_sec
        return f"the host is slow or busy; more time to import: MALLORN_IMPORT_TIMEOUT_SEC={limit_sec:.0f}"
    if isinstance(error, ChildCrashed) and error.died_of is Signals.SIGKILL:
        return "most likely the host ran out of memory: start the worker with MALLORN_BUILDERS=1"
    if isinstance(error, ChildCrashed) and _asked_for_too_much(error.message):
        limit_bytes = config.child_memory_bytes
        return (
            f"a compiler may use {limit_bytes / _GIB:.0f} GiB of address space: start the worker with "
            f"MALLORN_CHILD_MEMORY_BYTES={2 * limit_bytes}"
        )
    return ""


def _asked_for_too_much(last_words: str) -> bool:
    """Whether the process died of its limit; C++ and Python name it each in their own way."""
    return any(sign in last_words for sign in ("bad_alloc", "MemoryError", "Cannot allocate memory"))
