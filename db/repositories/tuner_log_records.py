"""Records of other tuners that nothing here can rebuild: stored once each, and counted.

Of stock MetaSchedule's own tuner they tell what it found.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import and_, func, or_, select

from db.measurement_codec import pack_text, pack_times, unpack_text
from db.repositories.base import Repository
from db.repositories.measurement_filters import is_not_refuted
from db.tables import ForeignRecord, ForeignTask, Job, Measurement, SourceDataset, Task
from mallorn.core.outcomes import Outcome

# Its logs name no dataset: they all stand for this one, which later exports of a dataset keep.
STOCK: Final = uuid5(NAMESPACE_URL, "metaschedule").hex


@dataclass(frozen=True)
class ForeignTrial:
    """One line of another tuner's log, as far as its reader asked.

    Latencies compare only within one task and target.
    """

    format: str
    task: str  # the log's own key of the program
    target: str  # the log's own words
    steps: str  # how the candidate was made, as JSON
    outcome: Outcome
    failure: str | None = None  # the log's own code
    run_us: tuple[float, ...] = ()
    measured_at: float | None = None  # None: the log does not say
    latency_us: float | None = None  # the median of `run_us`

    def __post_init__(self) -> None:
        if self.latency_us is None and self.run_us:
            object.__setattr__(self, "latency_us", median(self.run_us))

    @cached_property
    def task_key(self) -> str:
        """Names the task, alike in every file."""
        return _hash(self.format, self.task, self.target).hex()

    @cached_property
    def key(self) -> bytes:
        """Names the record by all it says, so that a file may be imported again after it grew."""
        return _hash(self.task_key, self.steps, self.outcome, self.failure, self.run_us, self.measured_at)


class ForeignRecords(Repository):
    """Others' records. No query that looks for a schedule reads this table."""

    def sample(self, format: str, limit: int) -> Iterator[ForeignTrial]:
        """All records of a format, by task; of more than `limit` an even share, and the best of each task."""
        own = ForeignRecord.task_id.in_(select(ForeignTask.id).where(ForeignTask.format == format))
        count = self.session.scalar(select(func.count()).select_from(ForeignRecord).where(own)) or 0
        best = (
            select(ForeignRecord.task_id, func.min(ForeignRecord.latency_us).label("us"))
            .where(own)
            .group_by(ForeignRecord.task_id)
            .subquery()
        )
        step = max(1, -(-count // limit))
        wanted = ForeignRecord.id % step == 0, ForeignRecord.latency_us == best.c.us
        columns = ForeignRecord.steps, ForeignRecord.outcome, ForeignRecord.latency_us
        query = (
            select(ForeignTask.task, ForeignTask.target, *columns)
            .join(ForeignTask, ForeignTask.id == ForeignRecord.task_id)
            .join(best, best.c.task_id == ForeignRecord.task_id)
            .where(or_(*wanted))
            .order_by(ForeignRecord.task_id, ForeignRecord.id)
        )
        for task, target, packed, outcome, latency_us in self.session.execute(query):
            told = task, target, unpack_text(packed), Outcome(outcome)
            yield ForeignTrial(format, *told, latency_us=latency_us)

    def add(self, records: Sequence[ForeignTrial]) -> int:
        """Store records that are not here yet and return how many those were."""
        if not records:
            return 0
        tasks = [
            {"key": key, "format": record.format, "task": record.task, "target": record.target}
            for key, record in sorted({record.task_key: record for record in records}.items())
        ]
        self.for_each(self.insert(ForeignTask).on_conflict_do_nothing(index_elements=["key"]), tasks)
        keys = self.among(ForeignTask.key, [task["key"] for task in tasks])
        task_ids = dict(self.session.execute(select(ForeignTask.key, ForeignTask.id).where(keys)).all())
        values = [
            {
                "key": record.key,
                "task_id": task_ids[record.task_key],
                "steps": pack_text(record.steps),
                "outcome": record.outcome,
                "failure": record.failure,
                "latency_us": record.latency_us,
                "run_us": pack_times(record.run_us) if record.run_us else None,
                "measured_at": record.measured_at,
            }
            for record in records
        ]
        return self.for_each(
            self.insert(ForeignRecord).on_conflict_do_nothing(index_elements=["key"]), values
        )


def _hash(*parts: object) -> bytes:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).digest()


class Stock(Repository):
    """Times of hosts that the logs do not name: shown beside ours, and never the best of a task."""

    def best_us(self, job_id: str) -> dict[int, float]:
        """The least time of each workload on the job's target, by the task's id; others are left out."""
        same = and_(Measurement.workload_id == Task.workload_id, Measurement.target_id == Job.target_id)
        query = (
            select(Task.id, func.min(Measurement.latency_us))
            .join(Job, Job.id == Task.job_id)
            .join(Measurement, same)
            .join(SourceDataset, SourceDataset.id == Measurement.source_id)
            .where(Task.job_id == job_id, SourceDataset.key == STOCK, is_not_refuted())
            .group_by(Task.id)
        )
        return {task: us for task, us in self.session.execute(query) if us is not None}
