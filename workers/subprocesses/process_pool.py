"""Child processes that run tasks in parallel; a timeout or crash ends only its task."""

import select
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from mallorn.core.errors import MallornError
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.pending_call import Call, PendingCall

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Finished(Generic[R]):
    """A finished task: its tag, and its result or the error that ended it."""

    tag: Hashable
    end: R | MallornError


class ChildPool(Generic[R]):
    """Runs tasks of one kind in `size` children, which stay alive between tasks. Time
    during which a child starts or is suspended does not count against a timeout."""

    def __init__(self, make: Callable[[], Child], size: int) -> None:
        self._children = [make() for _ in range(size)]
        self._running: dict[Child, tuple[Hashable, PendingCall[R]]] = {}  # tags and calls
        self._suspended = False

    @property
    def size(self) -> int:
        """Number of children; their places are numbered from 0."""
        return len(self._children)

    @property
    def idle(self) -> list[int]:
        return [place for place, child in enumerate(self._children) if child not in self._running]

    @property
    def tags(self) -> list[Hashable]:
        return [tag for tag, _ in self._running.values()]

    def start(self) -> None:
        """Start every child now, so that the first tasks need not wait for a start."""
        for child in self._children:
            child.start()

    def submit(self, call: Call[R], tag: Hashable, place: int | None = None) -> None:
        """Start a task on the idle child at `place`, else any; not while suspended."""
        child = self._children[self.idle[0] if place is None else place]
        self._running[child] = tag, child.begin(call)

    def poll(self, timeout_sec: float) -> list[Finished[R]]:
        """Return the tasks that ended, waiting up to `timeout_sec` for the first one."""
        until_sec = time.monotonic() + timeout_sec
        while self._running:
            tasks: list[Finished[R]] = []
            for child, (tag, pending) in list(self._running.items()):
                try:
                    if not pending.poll():
                        continue
                    end: R | MallornError = pending.result()
                except MallornError as error:
                    end = error
                del self._running[child]
                if not self._suspended:
                    child.start()  # if it died, its successor starts while others work
                tasks.append(Finished(tag, end))
            limits_sec = [pending.left_sec for _, pending in self._running.values()]
            left_sec = min([until_sec - time.monotonic(), *limits_sec])
            if tasks or until_sec <= time.monotonic():
                return tasks
            poller = select.poll()
            for child in self._running:
                poller.register(child.fileno(), child.events)
            poller.poll(max(0.0, left_sec) * 1000)
        return []

    def suspend(self) -> None:
        """Suspend all children and their deadlines until `resume`."""
        if not self._suspended:
            self._suspended = True
            for _, pending in self._running.values():
                pending.pause_deadline()
            for child in self._children:
                child.suspend()

    def resume(self) -> None:
        """Resume all children; extend their deadlines by the time they were suspended."""
        if self._suspended:
            self._suspended = False
            for _, pending in self._running.values():
                pending.resume_deadline()
            for child in self._children:
                child.resume()

    def cancel(self) -> list[Hashable]:
        """Kill the children that run tasks; return the tags of these tasks."""
        tags = self.tags
        for child in self._running:
            child.kill()
        self._running.clear()
        return tags

    def close(self) -> None:
        self._running.clear()
        for child in self._children:
            child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
