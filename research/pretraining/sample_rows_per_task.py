"""Sorts a stream of measurements into tasks, in memory that is bounded whatever the stream's length."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from typing import Final, NamedTuple

from costmodels.labels import UNINFORMATIVE
from db.measurement_codec import unpack_decisions
from mallorn.core.outcomes import Outcome
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.trial import Trial
from research.pretraining.training_data import TaskData

MOST_ROWS: Final = 100_000  # what is kept of a larger set: some hundred MB of features
SCATTER: Final = 2654435761  # Knuth's multiplier: consecutive rows land far apart
SPAN: Final = 1 << 32
NOWHERE: Final = ""  # the context of what never reached a device
Numbered = tuple[int, Trial]  # with its place among all rows that were shown


class TaskKey(NamedTuple):
    """Identifies a task."""

    workload: str
    target: str
    context: str


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """The operator and descriptors of a workload."""

    op: str
    descriptors: tuple[float, ...]
    workload_id: int | None = None  # in this database


@dataclass(slots=True)
class TaskSample:
    """Keeps all rows of a small set and an even sample of a large one, the best of each task in any case."""

    total: int  # rows that will be shown
    limit: int = MOST_ROWS
    rows: dict[TaskKey, list[Numbered]] = field(default_factory=lambda: defaultdict(list))
    _best_us: dict[TaskKey, float] = field(default_factory=lambda: defaultdict(lambda: inf))
    _number: int = 0

    def add(
        self, place: TaskKey, sketch: str, decisions: bytes, outcome: Outcome, latency_us: float | None
    ) -> None:
        """Keep the row or not; the choice depends on the order of the rows alone."""
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
        return {trial.candidate.sketch for rows in self.rows.values() for _, trial in rows}

    @property
    def workloads(self) -> set[str]:
        return {place.workload for place in self.rows}

    @property
    def contexts(self) -> set[str]:
        return {place.context for place in self.rows} - {NOWHERE}

    def tasks(
        self,
        facts: Mapping[str, WorkloadFacts],
        sketches: Mapping[str, Sketch],
        hosts: Mapping[str, str],  # the class of the machines of each context
    ) -> list[TaskData]:
        """A task for each workload, target and context, in the order they were first met."""
        return [
            _task_data(place, trials, facts[place.workload], sketches, hosts.get(place.context, ""))
            for place, trials in self._homed().items()
        ]

    def _homed(self) -> dict[TaskKey, list[Trial]]:
        """Rows that never reached a device get the context in which their workload was measured most."""
        measured = [place for place in self.rows if place.context != NOWHERE]
        homes = {
            place._replace(context=NOWHERE): place
            for place in sorted(measured, key=lambda place: len(self.rows[place]))
        }
        found = defaultdict[TaskKey, list[Numbered]](list)
        for place, rows in self.rows.items():
            found[homes.get(place, place)] += rows
        in_order = {place: sorted(rows, key=itemgetter(0)) for place, rows in found.items()}
        return {place: [trial for _, trial in rows] for place, rows in in_order.items()}


def _task_data(
    place: TaskKey, trials: list[Trial], facts: WorkloadFacts, sketches: Mapping[str, Sketch], host: str
) -> TaskData:
    return TaskData(
        *(place.workload, facts.op, place.target, place.context, facts.descriptors),
        sketches={key: sketches[key] for key in {trial.candidate.sketch for trial in trials}},
        trials=trials,
        workload_id=facts.workload_id,
        host=host,
    )
