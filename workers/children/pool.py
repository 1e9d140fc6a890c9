"""A pool of children that work side by side, each task bounded in time and able to die alone."""

import select
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from mallorn.core.errors import MallornError
from workers.children.child import START_TIMEOUT_SEC, Child


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one task: its result, or the error that ended it."""

    tag: Hashable
    result: Any = None
    error: MallornError | None = None


@dataclass(slots=True)
class _Running:
    tag: Hashable
    timeout_sec: float
    deadline_sec: float
    ready: bool


class ChildPool:
    """Runs tasks in `size` warm children.

    Time spent suspended, or starting, does not count against a timeout.
    """

    def __init__(
        self,
        module: str,
        size: int,
        *,
        env: Mapping[str, str] | None = None,
        memory_bytes: int | None = None,
        max_calls: int | None = None,
        name: str = "",
    ) -> None:
        self._children = [
            Child(module, env=env, memory_bytes=memory_bytes, max_calls=max_calls, name=name)
            for _ in range(size)
        ]
        self._running: dict[Child, _Running] = {}
        self._suspended_sec: float | None = None

    @property
    def free(self) -> int:
        """How many more tasks can be submitted now."""
        return len(self._children) - len(self._running)

    @property
    def tags(self) -> list[Hashable]:
        """The tags of the tasks in progress."""
        return [running.tag for running in self._running.values()]

    def start(self) -> None:
        """Start every child now, so that the first tasks find them warm."""
        for child in self._children:
            child.start()

    def submit(self, method: str, params: Mapping[str, Any], timeout_sec: float, tag: Hashable) -> None:
        """Begin a task on a free child; `free` must be above 0 and the pool not suspended."""
        child = next(child for child in self._children if child not in self._running)
        child.send(method, **params)
        budget_sec = timeout_sec if child.ready else START_TIMEOUT_SEC
        self._running[child] = _Running(tag, timeout_sec, time.monotonic() + budget_sec, child.ready)

    def poll(self, timeout_sec: float) -> list[Finished]:
        """The tasks that ended, waiting up to `timeout_sec` for the first one."""
        until_sec = time.monotonic() + timeout_sec
        while self._running:
            finished = [end for child in list(self._running) if (end := self._end_of(child)) is not None]
            left_sec = min(until_sec, self._next_deadline_sec()) - time.monotonic()
            if finished or until_sec <= time.monotonic():
                return finished
            self._wait(left_sec)
        return []

    def suspend(self) -> None:
        """Stop all children where they are, until `resume`."""
        if self._suspended_sec is None:
            self._suspended_sec = time.monotonic()
            for child in self._children:
                child.suspend()

    def resume(self) -> None:
        """Let all children go on; their deadlines move by the time they stood still."""
        if self._suspended_sec is not None:
            paused_sec = time.monotonic() - self._suspended_sec
            self._suspended_sec = None
            for running in self._running.values():
                running.deadline_sec += paused_sec
            for child in self._children:
                child.resume()

    def cancel(self) -> list[Hashable]:
        """Kill the children that are at work; the tags of the tasks that will not end."""
        tags = self.tags
        for child in self._running:
            child.kill()
        self._running.clear()
        return tags

    def close(self) -> None:
        """Kill all children."""
        self._running.clear()
        for child in self._children:
            child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end_of(self, child: Child) -> Finished | None:
        running = self._running[child]
        try:
            if child.poll():
                return self._finish(child, Finished(running.tag, result=child.result()))
        except MallornError as error:
            return self._finish(child, Finished(running.tag, error=error))
        if child.ready and not running.ready:
            running.ready, running.deadline_sec = True, time.monotonic() + running.timeout_sec
        if self._suspended_sec is None and running.deadline_sec <= time.monotonic():
            return self._finish(child, Finished(running.tag, error=child.expire(running.timeout_sec)))
        return None

    def _finish(self, child: Child, end: Finished) -> Finished:
        del self._running[child]
        if self._suspended_sec is None:
            child.start()  # its successor warms up while others work
        return end

    def _next_deadline_sec(self) -> float:
        if self._suspended_sec is not None or not self._running:
            return float("inf")
        return min(running.deadline_sec for running in self._running.values())

    def _wait(self, timeout_sec: float) -> None:
        poller = select.poll()
        for child in self._running:
            poller.register(child.fileno(), child.events)
        poller.poll(max(0.0, timeout_sec) * 1000)
