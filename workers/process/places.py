"""Places of a worker: how many rounds and stages it does at a time, by what rounds cost."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Final, Generic, NamedTuple, TypeVar

from mallorn.core.values.trial import Trial
from mallorn.db.repositories.leases import LeaseToken
from mallorn.workers.subprocesses.shutdown import STOP

MOST_PLACES: Final = 64
COMMIT_SEC, COMMITS_PER_SEC = 3.0, 4  # of a round, at least; of all rounds together, about
LOOK_SEC: Final = 0.5  # between checks whether the worker must stop
NEWEST: Final = 0.3  # weight of the newest round among all
R = TypeVar("R")


class RoundCost(NamedTuple):
    """Seconds that a round used of this process's processor, of builders and of its device."""

    own_sec: float
    build_sec: float
    device_sec: float

    def mixed_with(self, newer: "RoundCost") -> "RoundCost":
        """Return the weighted mean of this cost and a newer one."""
        return RoundCost(*(old + NEWEST * (new - old) for old, new in zip(self, newer, strict=True)))

    def best_width(self, builders: int) -> int:
        """Return how many such rounds keep the builders busy, or this process, which runs
        one thread at a time; of the latter twice as many, since rounds differ."""
        if not self.own_sec:
            return 1
        alone_sec = self.own_sec + max(self.device_sec, self.build_sec / builders)
        busy_builders = ceil(builders * alone_sec / (self.own_sec + self.build_sec))
        return max(1, min(busy_builders, int(2 * alone_sec / self.own_sec)))


class CostMeter:
    """Adds up what a round costs, in the thread that runs it."""

    def __init__(self) -> None:
        self._began_sec = time.thread_time()
        self.candidates, self.build_ms, self._run_ms = 0, 0.0, 0.0

    def add(self, trial: Trial) -> None:
        self.candidates += 1
        self.build_ms += trial.build_ms or 0.0
        self._run_ms += trial.run_ms or 0.0

    def estimate(self, size: int) -> RoundCost:
        """Return what a round of `size` candidates costs, from those measured so far."""
        scale = size / self.candidates / 1e3
        own_sec = time.thread_time() - self._began_sec
        return RoundCost(own_sec, self.build_ms * scale, self._run_ms * scale)


class Places(Generic[R]):
    """The places of a worker; at most `width` of them are taken. `furnish` returns what a
    further place works with."""

    def __init__(self, furnish: Callable[[], R], most: int = MOST_PLACES) -> None:
        self.width = 1
        self._most = max(1, min(most, MOST_PLACES))
        self._furnish = furnish
        self._cost: RoundCost | None = None
        self._idle: list[R] = []
        self.all: list[R] = []
        self.held: set[LeaseToken] = set()  # the leases of work at these places
        self.on_width: Callable[[int], object] = lambda _: None
        self._freed = threading.Condition()

    @property
    def taken(self) -> int:
        return len(self.all) - len(self._idle)

    @property
    def commit_sec(self) -> float:
        """Seconds between commits of a round, so that all together cost little."""
        return max(COMMIT_SEC, self.taken / COMMITS_PER_SEC)

    @contextmanager
    def take(self) -> Iterator[R]:
        """Take a place for the block, as soon as one is free. Raises ShutdownRequested once
        the worker was asked to stop."""
        with self._freed:
            while self.taken >= self.width:
                STOP.raise_if_requested()
                self._freed.wait(LOOK_SEC)
            if self._idle:
                place = self._idle.pop()
            else:
                self.all.append(place := self._furnish())
        try:
            yield place
        finally:
            with self._freed:
                self._idle.append(place)
                self._freed.notify()

    def adapt_width(self, meter: CostMeter, size: int, builders: int) -> None:
        """Use as many places as rounds like the last ones need; tell `on_width` of a change. A
        round of `size` candidates counts when all are measured; the first one, at once."""
        with self._freed:
            if self._cost is not None and meter.candidates < size:
                return
            cost = meter.estimate(size)
            self._cost = cost if self._cost is None else self._cost.mixed_with(cost)
            before, self.width = self.width, min(self._most, self._cost.best_width(builders))
            self._freed.notify_all()
        if self.width != before:
            self.on_width(self.width)
