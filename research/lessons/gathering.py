"""Sorts a stream of measurements into lessons, in memory that is bounded whatever the stream's length."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from typing import Final, NamedTuple

from costmodels.training import UNINFORMATIVE
from db.codec import unpack_decisions
from mallorn.core.outcomes import Outcome
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.trial import Trial
from research.lessons.lesson import Lesson

MOST_ROWS: Final = 100_000  # what is kept of a larger set: some hundred MB of features
SCATTER: Final = 2654435761  # Knuth's multiplier: consecutive rows land far apart
SPAN: Final = 1 << 32
NOWHERE: Final = ""  # the context of what never reached a device
Numbered = tuple[int, Trial]  # with its place among all rows that were shown


class Place(NamedTuple):
    """What a lesson's rows have in common."""

    workload: str
    target: str
    context: str


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
    rows: dict[Place, list[Numbered]] = field(default_factory=lambda: defaultdict(list))
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
            candidate = Candidate(sketch, unpack_decisions(decisions))
            self.rows[place].append((self._number, Trial(candidate, outcome, latency_us)))

    @property
    def sketches(self) -> set[str]:
        """The sketches that occur."""
        return {trial.candidate.sketch for rows in self.rows.values() for _, trial in rows}

    @property
    def workloads(self) -> set[str]:
        """The workloads that occur."""
        return {place.workload for place in self.rows}

    def lessons(self, facts: Mapping[str, Facts], sketches: Mapping[str, Sketch]) -> list[Lesson]:
        """One a workload, target and context, in the order they were first met."""
        return [
            _lesson(place, trials, facts[place.workload], sketches) for place, trials in self._homed().items()
        ]

    def _homed(self) -> dict[Place, list[Trial]]:
        """What never reached a device is told with the context that its workload was measured in most."""
        measured = [place for place in self.rows if place.context != NOWHERE]
        homes = {
            place._replace(context=NOWHERE): place
            for place in sorted(measured, key=lambda place: len(self.rows[place]))
        }
        found = defaultdict[Place, list[Numbered]](list)
        for place, rows in self.rows.items():
            found[homes.get(place, place)] += rows
        in_order = {place: sorted(rows, key=itemgetter(0)) for place, rows in found.items()}
        return {place: [trial for _, trial in rows] for place, rows in in_order.items()}


def _lesson(place: Place, trials: list[Trial], facts: Facts, sketches: Mapping[str, Sketch]) -> Lesson:
    return Lesson(
        *(place.workload, facts.op, place.target, place.context, facts.descriptors),
        sketches={key: sketches[key] for key in {trial.candidate.sketch for trial in trials}},
        trials=trials,
        workload_id=facts.workload_id,
    )
