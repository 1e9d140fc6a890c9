"""Child processes that run tasks in parallel; a timeout or crash ends only its task."""

import select
import time
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass
from threading import Condition
from typing import Any, Generic, Self, TypeVar

from mallorn.core.errors import MallornError
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.pending_call import Call, PendingCall

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Finished(Generic[R]):
    """A finished task: its tag, and its result or the error that ended it."""

    tag: Hashable
    end: R | MallornError


class _Children:
    """The children that several pools share. Each runs one task of one pool at a time."""

    def __init__(self, make: Callable[[], Child], size: int) -> None:
        self.all = [make() for _ in range(size)]
        self.users: dict[Child, ChildPool[Any]] = {}  # the pools whose tasks run
        self.calls: dict[Child, PendingCall[Any]] = {}
        self.waiting: set[ChildPool[Any]] = set()  # until they have submitted a task
        self.suspending: set[ChildPool[Any]] = set()
        self.changed = Condition()  # its lock guards all of this


class ChildPool(Generic[R]):
    """Runs tasks of one kind in `size` children, which stay alive between tasks. Time
    during which a child starts or is suspended does not count against a timeout.

    Several pools may share their children (`share`), each used by one thread. While others
    run tasks or wait for a child, none begins tasks on more than its part of the children.
    """

    def __init__(self, make: Callable[[], Child], size: int) -> None:
        self._children = _Children(make, size)
        self._running: dict[Child, Hashable] = {}  # the tags of this pool's tasks

    def share(self) -> "ChildPool[R]":
        """Return another pool of the same children."""
        pool = copy(self)
        pool._running = {}
        return pool

    @property
    def size(self) -> int:
        """Number of children; their places are numbered from 0."""
        return len(self._children.all)

    @property
    def idle(self) -> list[int]:
        """The places of idle children, as many as this pool may use."""
        shared = self._children
        with shared.changed:
            users = {*shared.users.values(), *shared.waiting, self}
            count = 0 if shared.suspending else -(-self.size // len(users)) - len(self._running)
            idle = [place for place, child in enumerate(shared.all) if child not in shared.users]
            return idle[: max(0, count)]

    @property
    def tags(self) -> list[Hashable]:
        return [*self._running.values()]

    def start(self) -> None:
        """Start every idle child now, so that the first tasks need not wait for a start."""
        with self._children.changed:
            for child in self._children.all:
                if child not in self._children.users:
                    child.start()

    def submit(self, call: Call[R], tag: Hashable, place: int | None = None) -> bool:
        """Start a task on the child at `place`, else on any; return whether one was idle."""
        shared = self._children
        with shared.changed:
            idle = self.idle
            child = shared.all[next(iter(idle), 0) if place is None else place]
            if not idle or child in shared.users:
                return False
            shared.calls[child] = child.begin(call)
            shared.users[child], self._running[child] = self, tag
            shared.waiting.discard(self)
            return True

    def wait_for_idle(self, timeout_sec: float) -> None:
        """Wait until a child is idle that this pool may use."""
        shared = self._children
        with shared.changed:
            shared.waiting.add(self)
            shared.changed.wait_for(lambda: self.idle, timeout_sec)

    def poll(self, timeout_sec: float) -> list[Finished[R]]:
        """Return the tasks that ended, waiting up to `timeout_sec` for the first one."""
        until_sec = time.monotonic() + timeout_sec
        while self._running:
            tasks = [task for child in [*self._running] if (task := self._end_of(child)) is not None]
            limits_sec = [self._children.calls[child].left_sec for child in self._running]
            left_sec = min([until_sec - time.monotonic(), *limits_sec])
            if tasks or until_sec <= time.monotonic():
                return tasks
            poller = select.poll()
            for child in self._running:
                poller.register(child.fileno(), child.events)
            poller.poll(max(0.0, left_sec) * 1000)
        return []

    def _end_of(self, child: Child) -> Finished[R] | None:
        """Return the end of a child's task and release the child; None while it runs."""
        pending: PendingCall[R] = self._children.calls[child]
        try:
            if not pending.poll():
                return None
            end: R | MallornError = pending.result()
        except MallornError as error:
            end = error
        tag = self._running[child]
        with self._children.changed:
            self._release(child)
            if not self._children.suspending:
                child.start()  # if it died, its successor starts while others work
        return Finished(tag, end)

    def _release(self, child: Child) -> None:
        del self._running[child], self._children.users[child], self._children.calls[child]
        self._children.changed.notify_all()

    def suspend(self) -> None:
        """Suspend all children and their deadlines, until no pool suspends them."""
        shared = self._children
        with shared.changed:
            if not shared.suspending:
                for pending in shared.calls.values():
                    pending.pause_deadline()
                for child in shared.all:
                    child.suspend()
            shared.suspending.add(self)

    def resume(self) -> None:
        """Resume all children; extend their deadlines by the time they were suspended."""
        shared = self._children
        with shared.changed:
            if shared.suspending == {self}:
                for pending in shared.calls.values():
                    pending.resume_deadline()
                for child in shared.all:
                    child.resume()
            shared.suspending.discard(self)
            shared.changed.notify_all()

    def cancel(self) -> list[Hashable]:
        """Kill the children that run this pool's tasks; return the tags of these tasks."""
        tags = self.tags
        with self._children.changed:
            self._children.waiting.discard(self)
            for child in [*self._running]:
                child.kill()
                self._release(child)
        return tags

    def close(self) -> None:
        """Kill all children."""
        with self._children.changed:
            for child in self._children.all:
                child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
