"""A call of a child's method, from its parameters to its result: the one place that knows its deadline."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Generic, Protocol, TypeVar

from workers.subprocesses.errors import ChildError, ChildFailed

R = TypeVar("R")
START_TIMEOUT_SEC: Final = 300.0  # half a dozen may start at once, each with all of TVM to load


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A method and what it is given, ready to be sent."""

    method: str
    params: bytes
    limit_sec: float
    read: Callable[[bytes], R]

    def within(self, limit_sec: float) -> "Call[R]":
        return replace(self, limit_sec=limit_sec)


class Process(Protocol):
    """A helper process that works at a call."""

    @property
    def ready(self) -> bool: ...
    def answered(self) -> bool: ...
    def take(self) -> bytes: ...
    def wait(self, timeout_sec: float) -> None: ...
    def expire(self, timeout_sec: float) -> ChildError: ...


class PendingCall(Generic[R]):
    """A call that was sent. Its time begins when the process is ready, and stands still in a pause."""

    def __init__(self, process: Process, call: Call[R]) -> None:
        self._process = process
        self._call = call
        self._was_ready = process.ready
        self._paused_sec: float | None = None
        budget_sec = call.limit_sec if self._was_ready else START_TIMEOUT_SEC
        self._deadline_sec = time.monotonic() + budget_sec

    def poll(self) -> bool:
        """Whether the answer is here; never waits.

        Raises ChildCrashed when the process died or never began, ChildTimeout when its time was over.
        """
        if self._process.answered():
            return True
        if self._process.ready and not self._was_ready:
            self._was_ready, self._deadline_sec = True, time.monotonic() + self._call.limit_sec
        if self.left_sec <= 0:
            raise self._process.expire(self._call.limit_sec)
        return False

    def wait(self) -> R:
        """The result, once it is here. Raises what `poll` raises, or what the method raised."""
        while not self.poll():
            self._process.wait(self.left_sec)
        return self.result()

    def result(self) -> R:
        """What the method returned, after `poll` found it; or raise what it raised."""
        body = self._process.take()
        try:
            return self._call.read(body)
        except ValueError:
            raise ChildFailed("NoResult", f"{self._call.method} returned what cannot be read") from None

    @property
    def left_sec(self) -> float:
        """How long to wait at most before the next `poll`."""
        if self._paused_sec is not None:
            return inf
        return self._deadline_sec - time.monotonic()

    def pause(self) -> None:
        """Its process is suspended: the time stands still until `go_on`."""
        self._paused_sec = time.monotonic()

    def go_on(self) -> None:
        if self._paused_sec is not None:
            self._deadline_sec += time.monotonic() - self._paused_sec
            self._paused_sec = None
