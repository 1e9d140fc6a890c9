"""Logical processes in one thread: fibers, one of which runs at a time, by a clock of their own."""

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any, Final

from greenlet import getcurrent, greenlet

EPOCH_SEC: Final = 1_800_000_000.0


class Died(BaseException):
    """The process of this fiber is dead: nothing it would still do happens."""


class Host:
    """What stays when a process is started again in its place."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ahead_sec = 0.0  # of the loom's time, by which its wall clock is
        self.version = 0  # of what is installed there; 1 is newer, -1 older
        self.sick_until = 0.0
        self.full_until = 0.0


class Process:
    """What dies as a whole, freezes as a whole, and has a clock that runs at a pace of its own."""

    def __init__(self, name: str, pace: float = 1.0, host: Host | None = None) -> None:
        self.name = name
        self.host = host or Host(name)
        self.code = self.host.version  # that it runs: what was installed when it began
        self.pace = pace
        self.alive = True
        self.frozen_until = 0.0
        self.steps_to_death: int | None = None
        self.steps_to_error: int | None = None
        self.commits_to_silence: int | None = None
        self.runtime: Any = None  # of a worker

    def check(self) -> None:
        """Raise Died in a fiber of a dead process."""
        if not self.alive:
            raise Died


class Fiber:
    """One thread of a logical process; a stack of its own that others are put in the place of."""

    def __init__(self, process: Process, name: str, stack: greenlet) -> None:
        self.process = process
        self.name = name
        self.stack = stack
        self.ticket = 0
        self.over = False
        self.writes = False  # is in a transaction
        self.alone = False  # holds the lock of all writers: must not be put aside
        self.noted: list[tuple[Any, ...]] = []  # of a transaction that is not committed yet


class Loom:
    """Whose turn it is, and what time: the earliest that waits, and time jumps to it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = EPOCH_SEC
        self.running: Fiber | None = None
        self.broken: BaseException | None = None
        self.switches = 0
        self._until = 0.0
        self._queue: list[tuple[float, int, Fiber | Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._fibers: list[Fiber] = []
        self._main = getcurrent()

    @property
    def process(self) -> Process:
        """Whose code runs now."""
        assert self.running is not None
        return self.running.process

    def spawn(self, process: Process, work: Callable[[], object], name: str = "main") -> Fiber:
        """A fiber that begins soon."""
        fiber = Fiber(process, name, greenlet(parent=self._main))
        fiber.stack.run = lambda *_ended: self._run(fiber, work)  # may begin where another ends
        self._fibers.append(fiber)
        self._wait_until(fiber, self.now + self._moment())
        return fiber

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Do something that needs no fiber, as it does not wait."""
        heapq.heappush(self._queue, (when, next(self._numbers), act))

    def step(self) -> None:
        """A point at which others may get their turn."""
        fiber = self.running
        assert fiber is not None
        fiber.process.check()
        if not fiber.alone:
            self.sleep(self._moment())

    def sleep(self, sec: float) -> None:
        """Time passes for this fiber."""
        fiber = self.running
        assert fiber is not None
        fiber.process.check()
        self._wait_until(fiber, self.now + sec)
        self._put_aside(fiber)

    def park(self, sec: float | None) -> None:
        """Wait to be woken, or for so long."""
        fiber = self.running
        assert fiber is not None
        fiber.process.check()
        if sec is not None:
            self._wait_until(fiber, self.now + sec)
        else:
            fiber.ticket = -1
        self._put_aside(fiber)

    def wake(self, fiber: Fiber) -> None:
        """End a fiber's wait."""
        if not fiber.over:
            self._wait_until(fiber, self.now)

    def run(self, sec: float) -> None:
        """Let all go on until so much time has passed, nobody waits for anything, or `stop`."""
        self._until = self.now + sec
        self._hand_on(None)

    def stop(self) -> None:
        """End `run` at the next switch."""
        self._until = self.now - 1

    def close(self) -> None:
        """Kill everybody, one after another."""
        self._queue.clear()
        self._until = float("inf")
        for fiber in self._fibers:
            fiber.process.alive = False
            if not fiber.over:
                self._wait_until(fiber, self.now)
        self._hand_on(None)

    def _hand_on(self, fiber: Fiber | None) -> None:
        """Let the next go on; a fiber goes on here when its turn comes again."""
        following = self._next()
        self.running = following
        if following is fiber:
            return
        self.switches += 1
        stack = self._main if following is None else following.stack
        if fiber is not None and fiber.over:
            fiber.stack.parent = stack  # who ends goes on there
        else:
            stack.switch()

    def _put_aside(self, fiber: Fiber) -> None:
        self._hand_on(fiber)
        while fiber.process.alive and fiber.process.frozen_until > self.now:
            self._wait_until(fiber, fiber.process.frozen_until)
            self._hand_on(fiber)
        fiber.process.check()

    def _next(self) -> Fiber | None:
        while self._queue:
            when, number, what = self._queue[0]
            if when > self._until:
                return None
            heapq.heappop(self._queue)
            if not isinstance(what, Fiber):
                self.now, self.running = max(self.now, when), None
                what()
            elif what.ticket == number and not what.over:
                self.now = max(self.now, when)
                return what
        return None

    def _wait_until(self, fiber: Fiber, when: float) -> None:
        fiber.ticket = next(self._numbers)
        heapq.heappush(self._queue, (when, fiber.ticket, fiber))

    def _moment(self) -> float:
        """Mostly milliseconds, and now and then long enough for others to get far."""
        return self.random.expovariate(100) if self.random.random() < 0.95 else self.random.uniform(0, 2)

    def _run(self, fiber: Fiber, work: Callable[[], object]) -> None:
        try:
            fiber.process.check()
            work()
        except Died:
            pass
        except BaseException as error:
            self.broken = self.broken or error
        fiber.over = True
        self._hand_on(fiber)
