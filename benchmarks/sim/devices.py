"""Simulated devices and their clock."""

from collections import deque
from heapq import heappop, heappush
from typing import Generic, TypeVar

Work = TypeVar("Work")


class Devices(Generic[Work]):
    """Identical devices; an idle one takes the oldest piece of work, for as long as that says."""

    def __init__(self, count: int) -> None:
        self.now_sec = 0.0
        self.idle = count
        self._waiting: deque[tuple[Work, float]] = deque()
        self._running: list[tuple[float, int, Work]] = []
        self._started = 0

    def submit(self, work: Work, seconds: float) -> None:
        """Queue a piece of work; it begins now where a device is idle."""
        self._waiting.append((work, seconds))
        self._start()

    def finish_next(self) -> Work:
        """Let time pass until a piece of work is done; raises IndexError when there is none."""
        self.now_sec, _, work = heappop(self._running)
        self.idle += 1
        self._start()
        return work

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def _start(self) -> None:
        while self.idle and self._waiting:
            work, seconds = self._waiting.popleft()
            self.idle -= 1
            self._started += 1  # what ends together ends in the order it began
            heappush(self._running, (self.now_sec + seconds, self._started, work))
