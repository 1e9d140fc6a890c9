"""Messages that wake: some are lost, come twice, late, in another order, or are all gone at once."""

from typing import Any, Final, NamedTuple

from mallorn.core import queues
from tests.simulation.clockwork import Event, wall
from tests.simulation.loom import Loom

CONTROL: Final = (queues.PLAN, queues.SWEEP, queues.REAP)


class Message(NamedTuple):
    """What a task is asked to do. `expires`: by the wall clock of its sender, as Celery writes it."""

    name: str
    args: tuple[Any, ...]
    expires: float | None = None


class Broker:
    """Two queues, one of control and one of the workers."""

    def __init__(self, loom: Loom) -> None:
        self._loom = loom
        self._waiting: dict[bool, list[Message]] = {True: [], False: []}
        self._came = {True: Event(loom), False: Event(loom)}
        self._flushes = 0
        self.to_lose = 0
        self.to_double = 0
        self.to_delay = 0
        self.late_sec = 0.0

    def send(
        self, name: str, *args: object, after_sec: float = 0.0, expires_sec: float | None = None
    ) -> None:
        """Send a message, as far as the weather lets it through."""
        if self._loom.running is not None:
            self._loom.process.check()
        if self.to_lose:
            self.to_lose -= 1
            return
        copies = 1
        if self.to_double:
            self.to_double -= 1
            copies = 2
        for _ in range(copies):
            delay_sec = after_sec + self._loom.random.uniform(0.001, 0.05)
            if self.to_delay:
                self.to_delay -= 1
                delay_sec += self._loom.random.uniform(0, self.late_sec)
            expires = None if expires_sec is None else wall(self._loom) + expires_sec
            self._deliver(Message(name, args, expires), delay_sec)

    def take(self, control: bool) -> Message:
        """The next message for control or for a worker; waits for it."""
        while not self._waiting[control]:
            self._came[control].clear()
            self._came[control].wait()
        return self._waiting[control].pop(0)

    def flush(self) -> None:
        """FLUSHALL: what was sent is gone, on the way or not."""
        self._flushes += 1
        for queue in self._waiting.values():
            queue.clear()

    def _deliver(self, message: Message, delay_sec: float) -> None:
        sent_in = self._flushes

        def arrive() -> None:
            if sent_in == self._flushes:
                control = message.name in CONTROL
                self._waiting[control].append(message)
                self._came[control].set()

        self._loom.at(self._loom.now + delay_sec, arrive)
