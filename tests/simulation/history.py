"""What happened in a run, in order: what was committed, sent, run and checked, and by whom."""

from hashlib import sha256
from typing import Any, NamedTuple

from tests.simulation.loom import EPOCH_SEC, Loom


class Entry(NamedTuple):
    """One thing that happened, at the loom's time."""

    at_sec: float
    who: str
    what: str
    facts: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.at_sec:9.3f}  {self.who:12} {self.what:9} {' '.join(map(str, self.facts))}"


class History:
    """The entries of a run."""

    def __init__(self, loom: Loom) -> None:
        self._loom = loom
        self.entries: list[Entry] = []

    def note(self, what: str, *facts: Any) -> None:
        """It happened now, whatever becomes of its process."""
        who = "" if self._loom.running is None else self._loom.process.name
        self.entries.append(Entry(self._loom.now - EPOCH_SEC, who, what, facts))

    def when_committed(self, what: str, *facts: Any) -> None:
        """It happens if the transaction of the running fiber commits."""
        fiber = self._loom.running
        assert fiber is not None
        fiber.noted.append((what, *facts))

    def of(self, *kinds: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.what in kinds]

    @property
    def digest(self) -> str:
        """Equal for equal histories, on every machine."""
        lines = "\n".join(map(str, self.entries))
        return sha256(lines.encode()).hexdigest()
