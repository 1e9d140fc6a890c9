"""A pending call to a child process, and its deadline."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Generic, Protocol, TypeVar

from mallorn.workers.subprocesses.errors import ChildError, ChildFailed

R = TypeVar("R")
START_TIMEOUT_SEC: Final = 300.0  # about six children may start at once, and each loads all of TVM


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A call ready to be sent: method name, packed parameters, time limit and result reader."""

    method: str
    params: bytes
    limit_sec: float
    read: Callable[[bytes], R]

    def with_limit(self, limit_sec: float) -> "Call[R]":
        return replace(self, limit_sec=limit_sec)


class Process(Protocol):
    """The methods of a helper process that a pending call needs."""

    @property
    def ready(self) -> bool: ...
    def receive_answer(self) -> bool: ...
    def take_result(self) -> bytes: ...
    def wait(self, timeout_sec: float) -> None: ...
    def kill_after_timeout(self, timeout_sec: float) -> ChildError: ...


class PendingCall(Generic[R]):
    """A sent call. Its time limit starts when the process is ready; `pause` stops it."""

    def __init__(self, process: Process, call: Call[R]) -> None:
        self._process = process
        self._call = call
        self._was_ready = process.ready
        self._paused_sec: float | None = None
        budget_sec = call.limit_sec if self._was_ready else START_TIMEOUT_SEC
        self._deadline_sec = time.monotonic() + budget_sec

    def poll(self) -> bool:
        """Return whether the answer has arrived, without waiting. Raises ChildCrashed if
        the process died or did not start, ChildTimeout after the deadline."""
        if self._process.receive_answer():
            return True
        if self._process.ready and not self._was_ready:
            self._was_ready, self._deadline_sec = True, time.monotonic() + self._call.limit_sec
        if self.left_sec <= 0:
            raise self._process.kill_after_timeout(self._call.limit_sec)
        return False

    def wait(self) -> R:
        """Wait for the result and return it. Raises the errors of `poll` and of `result`."""
        while not self.poll():
            self._process.wait(self.left_sec)
        return self.result()

    def result(self) -> R:
        """Return the method's result once `poll` returned True, or raise the method's exception."""
        body = self._process.take_result()
        try:
            return self._call.read(body)
        except ValueError:
            raise ChildFailed("NoResult", f"{self._call.method} returned an unreadable result") from None

    @property
    def left_sec(self) -> float:
        """Seconds until the deadline, infinite in a pause."""
        if self._paused_sec is not None:
            return inf
        return self._deadline_sec - time.monotonic()

    def pause_deadline(self) -> None:
        """Stop the time limit's clock until `go_on`, because the process is suspended."""
        self._paused_sec = time.monotonic()

    def resume_deadline(self) -> None:
        if self._paused_sec is not None:
            self._deadline_sec += time.monotonic() - self._paused_sec
            self._paused_sec = None
