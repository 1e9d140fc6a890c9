"""Retry of a call whose helper process died, and advice to the user when it fails for good."""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from mallorn.core.settings import Settings
from workers.subprocesses.errors import ChildCrashed, ChildError, ChildKilled, ChildOutOfMemory, ChildTimeout

log = logging.getLogger(__name__)
T = TypeVar("T")


def twice(work: Callable[[], T]) -> T:
    """Return the result of `work`, which is called once more if its helper process crashed."""
    try:
        return work()
    except ChildCrashed as error:
        log.warning("once more: %s", error)
        return work()


_GIB: Final = 1024**3
# Messages of C++, Python and the system when a process reaches its memory limit.
_NO_MEMORY: Final = ("bad_alloc", "MemoryError", "Cannot allocate memory")


def lacks_memory(error: ChildError) -> bool:
    """Return whether the error's message says that the process reached its memory limit."""
    return any(words in error.message for words in _NO_MEMORY)


def advice(error: ChildError, config: Settings) -> str:
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
    if isinstance(error, ChildCrashed) and lacks_memory(error):
        limit_bytes = config.child_memory_bytes
        return (
            f"a compiler may use {limit_bytes / _GIB:.0f} GiB of address space: start the worker with "
            f"MALLORN_CHILD_MEMORY_BYTES={2 * limit_bytes}"
        )
    return ""
