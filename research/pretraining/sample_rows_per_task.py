"""Group a stream of measurements by task, keeping only a sample of a large stream."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from typing import Final, NamedTuple

from mallorn.core.outcomes import Outcome
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.trial import Trial
from mallorn.costmodels.labels import UNINFORMATIVE
from mallorn.db.measurement_codec import unpack_decisions
from mallorn.research.pretraining.training_data import TaskData

MOST_ROWS: Final = 100_000  # rows kept of a larger set: features take some hundred MB
SCATTER: Final = 2654435761  # Knuth's hash multiplier, which spreads consecutive row numbers
SPAN: Final = 1 << 32
NOWHERE: Final = ""  # the context of rows that never reached a device
Numbered = tuple[int, Trial]  # a trial with its number among all rows of the stream


class TaskKey(NamedTuple):
    """Identifies a task: workload, target and measuring context (such as the host class)."""

    workload: str
    target: str
    context: str


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """A workload's operator, descriptors (numbers for cost models) and id."""

    op: str
    descriptors: tuple[float, ...]
    workload_id: int | None = None  # None for data from files


@dataclass(slots=True)
class TaskSample:
    """Collects all rows of a small stream; of a large one a sample and tasks' new bests."""

    total: int  # rows that will be added
    limit: int = MOST_ROWS
    rows: dict[TaskKey, list[Numbered]] = field(default_factory=lambda: defaultdict(list))
    _best_us: dict[TaskKey, float] = field(default_factory=lambda: defaultdict(lambda: inf))
    _number: int = 0

    def add(
        self, key: TaskKey, sketch: str, decisions: bytes, outcome: Outcome, latency_us: float | None
    ) -> None:
        """Keep a task's new best and a fixed sample by row number; drop other rows."""
        self._number += 1
        if outcome in UNINFORMATIVE:
            return
        # Labels are relative to the best row of a task, so a sample must contain it.
        is_best = latency_us is not None and latency_us < self._best_us[key]
        if is_best and latency_us is not None:
            self._best_us[key] = latency_us
        if is_best or self._number * SCATTER % SPAN < SPAN * self.limit / max(self.total, 1):
            candidate = Candidate(sketch, unpack_decisions(decisions))
            self.rows[key].append((self._number, Trial(candidate, outcome, latency_us)))

    @property
    def sketches(self) -> set[str]:
        return {trial.candidate.sketch for rows in self.rows.values() for _, trial in rows}

    @property
    def workloads(self) -> set[str]:
        return {key.workload for key in self.rows}

    @property
    def contexts(self) -> set[str]:
        return {key.context for key in self.rows} - {NOWHERE}

    def tasks(
        self,
        facts: Mapping[str, WorkloadFacts],
        sketches: Mapping[str, Sketch],
        hosts: Mapping[str, str],  # the host class of each context
    ) -> list[TaskData]:
        """Return a task per workload, target and context, in the order of their first rows."""
        # Rows without a device get the context in which their workload has most rows.
        keys = [key for key in self.rows if key.context != NOWHERE]
        homes = {
            key._replace(context=NOWHERE): key for key in sorted(keys, key=lambda key: len(self.rows[key]))
        }
        rows_by_task = defaultdict[TaskKey, list[Numbered]](list)
        for key, rows in self.rows.items():
            rows_by_task[homes.get(key, key)] += rows

        tasks: list[TaskData] = []
        for key, rows in rows_by_task.items():
            trials = [trial for _, trial in sorted(rows, key=itemgetter(0))]
            workload_facts = facts[key.workload]
            tasks.append(
                TaskData(
                    workload=key.workload,
                    op=workload_facts.op,
                    target=key.target,
                    context=key.context,
                    descriptors=workload_facts.descriptors,
                    sketches={name: sketches[name] for name in {trial.candidate.sketch for trial in trials}},
                    trials=trials,
                    workload_id=workload_facts.workload_id,
                    host=hosts.get(key.context, ""),
                )
            )
        return tasks
