"""Sorts a stream of measurements into lessons, in memory that is bounded whatever the stream's length."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from costmodels.training import UNINFORMATIVE
from db.codec import unpack_decisions
from mallorn.core.outcomes import Outcome
from research.lessons.lesson import Lesson
from workers.search.space import Candidate, Sketch

MOST_ROWS: Final = 100_000  # what is kept of a larger set: some hundred MB of features
SCATTER: Final = 2654435761  # Knuth's multiplier: consecutive rows land far apart
SPAN: Final = 1 << 32
NOWHERE: Final = ""  # the context of what never reached a device


class Place(NamedTuple):
    """What a lesson's rows have in common."""

    workload: str
    target: str
    context: str


class Row(NamedTuple):
    """A measurement in as few bytes as will do."""

    number: int
    sketch: str
    decisions: bytes
    outcome: Outcome
    latency_us: float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a workload."""

    op: str
    descriptors: tuple[float, ...]
    workload_id: int | None = None  # where it is one of this database


@dataclass(slots=True)
class Gathering:
    """Keeps all rows of a small set and an even sample of a large one, the best of each task in any case."""

    total: int  # rows that will be shown
    limit: int = MOST_ROWS
    rows: dict[Place, list[Row]] = field(default_factory=lambda: defaultdict(list))
    _best_us: dict[Place, float] = field(default_factory=lambda: defaultdict(lambda: inf))
    _number: int = 0

    def add(
        self, place: Place, sketch: str, decisions: bytes, outcome: Outcome, latency_us: float | None
    ) -> None:
        """Keep the row or not: which ones depends on their order alone."""
        self._number += 1
        if outcome in UNINFORMATIVE:
            return
        # Labels are relative to the best of all: a sample without it would learn other ones.
        best = latency_us is not None and latency_us < self._best_us[place]
        if best and latency_us is not None:
            self._best_us[place] = latency_us
        if best or self._number * SCATTER % SPAN < SPAN * self.limit / max(self.total, 1):
            self.rows[place].append(Row(self._number, sketch, decisions, outcome, latency_us))

    @property
    def sketches(self) -> set[str]:
        """The sketches that occur."""
        return {row.sketch for rows in self.rows.values() for row in rows}

    @property
    def workloads(self) -> set[str]:
        """The workloads that occur."""
        return {place.workload for place in self.rows}

    def lessons(self, facts: Mapping[str, Facts], sketches: Mapping[str, Sketch]) -> list[Lesson]:
        """One a workload, target and context, in the order they were first met."""
        return [
            _lesson(place, rows, facts[place.workload], sketches) for place, rows in self._homed().items()
        ]

    def _homed(self) -> dict[Place, list[Row]]:
        """What never reached a device is told with the context that its workload was measured in most."""
        measured = [place for place in self.rows if place.context != NOWHERE]
        homes = {
            place._replace(context=NOWHERE): place
            for place in sorted(measured, key=lambda place: len(self.rows[place]))
        }
        found = defaultdict[Place, list[Row]](list)
        for place, rows in self.rows.items():
            found[homes.get(place, place)] += rows
        return {place: sorted(rows) for place, rows in found.items()}


def _lesson(place: Place, rows: list[Row], facts: Facts, sketches: Mapping[str, Sketch]) -> Lesson:
    return Lesson(
        *(place.workload, facts.op, place.target, place.context, facts.descriptors),
        sketches={key: sketches[key] for key in {row.sketch for row in rows}},
        candidates=[Candidate(row.sketch, unpack_decisions(row.decisions)) for row in rows],
        outcomes=[row.outcome for row in rows],
        latencies_us=[row.latency_us for row in rows],
        workload_id=facts.workload_id,
    )
