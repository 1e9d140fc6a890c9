"""Threads, events and time as simulated code sees them: `threading` and `time` of modules that wait."""

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation.loom import Fiber, Loom, Process


def wall(loom: Loom) -> float:
    """What the wall clock of the process shows that runs now."""
    return loom.now if loom.running is None else loom.now + loom.process.host.ahead_sec


class Event:
    """threading.Event over the loom."""

    def __init__(self, loom: Loom) -> None:
        self._loom = loom
        self._set = False
        self._waiting: list[Fiber] = []

    def is_set(self) -> bool:
        return self._set

    def clear(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for fiber in waiting:
            self._loom.wake(fiber)

    def wait(self, timeout: float | None = None) -> bool:
        if self._set:
            return True
        fiber = self._loom.running
        assert fiber is not None
        self._waiting.append(fiber)
        self._loom.park(None if timeout is None else timeout * fiber.process.pace)
        if fiber in self._waiting:
            self._waiting.remove(fiber)
        return self._set


class Lock:
    """threading.Lock over the loom."""

    def __init__(self, loom: Loom) -> None:
        self._free = Event(loom)
        self._free.set()

    def __enter__(self) -> None:
        while not self._free.is_set():
            self._free.wait()
        self._free.clear()

    def __exit__(self, *_: object) -> None:
        self._free.set()


class Thread:
    """threading.Thread as a fiber of the process that starts it."""

    def __init__(
        self,
        loom: Loom,
        target: Callable[..., object],
        args: tuple[Any, ...],
        name: str,
        fell: Callable[[str, Exception], None],
    ) -> None:
        self._loom = loom
        self._fell = fell
        self._work: Callable[[], object] = partial(target, *args)
        self._name = name
        self._done = Event(loom)

    def start(self) -> None:
        self._loom.spawn(self._loom.process, self._run, self._name)

    def join(self) -> None:
        self._done.wait()

    def is_alive(self) -> bool:
        return not self._done.is_set()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._fell(self._name, error)
        self._done.set()


class Threading:
    """In place of the module `threading`; `fell` is told what ended a thread."""

    def __init__(self, loom: Loom, fell: Callable[[str, Exception], None]) -> None:
        self._loom = loom
        self._fell = fell

    def Event(self) -> Event:
        return Event(self._loom)

    def Lock(self) -> Lock:
        return Lock(self._loom)

    def Thread(
        self,
        *,
        target: Callable[..., object],
        args: tuple[Any, ...] = (),
        name: str = "",
        daemon: bool = True,
    ) -> Thread:
        return Thread(self._loom, target, args, name, self._fell)


class Time:
    """In place of the module `time`; each process has a clock of its own pace, and a wall clock."""

    def __init__(self, loom: Loom) -> None:
        self._loom = loom

    def time(self) -> float:
        return wall(self._loom)

    def monotonic(self) -> float:
        return self._loom.now * self._process.pace

    def sleep(self, sec: float) -> None:
        self._loom.sleep(sec * self._process.pace)

    @property
    def _process(self) -> Process:
        return self._loom.process
