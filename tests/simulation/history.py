"""What happened in a run, in order: what was committed, sent, run and checked, and by whom."""

from hashlib import sha256
from typing import Any, Final, NamedTuple

from tests.simulation.loom import EPOCH_SEC, Loom

#: What was done by a commit, and is undone where the database goes back to before it.
COMMITTED: Final = frozenset({"claim", "renew", "release", "rest", "commit", "pull"})


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

    def went_back(self, mark: int) -> None:
        """The database is again what it was when there were so many entries."""
        self.note("restored", mark)

    def committed(self, *kinds: str) -> list[Entry]:
        """What was committed and not undone by a restore."""
        marks = {entry.facts[0] for entry in self.entries if entry.what == "restored"}
        kept: dict[int, list[Entry]] = {}
        left: list[Entry] = []
        for place, entry in enumerate(self.entries):
            if place in marks:
                kept[place] = [*left]
            if entry.what == "restored":
                left = [*kept[entry.facts[0]]]
            elif entry.what in kinds:
                left.append(entry)
        return left

    def may_be_undone(self, began: int, ended: int) -> bool:
        """Whether a restore may have taken away what was committed between these numbers of entries."""
        restored = [(at, each.facts[0]) for at, each in enumerate(self.entries) if each.what == "restored"]
        return any(at >= began and mark <= ended for at, mark in restored)

    def of(self, *kinds: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.what in kinds]

    @property
    def digest(self) -> str:
        """Equal for equal histories, on every machine."""
        lines = "\n".join(map(str, self.entries))
        return sha256(lines.encode()).hexdigest()
