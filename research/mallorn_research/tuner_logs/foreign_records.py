"""Other tuners' records, whose schedules Mallorn cannot rebuild, in the database."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from sqlalchemy import func, or_, select

from mallorn.core.outcomes import Outcome
from mallorn.db.measurement_codec import pack_text, pack_times, unpack_text
from mallorn.db.repositories.base import Repository
from mallorn.db.tables import ForeignRecord, ForeignTask


@dataclass(frozen=True)
class ForeignTrial:
    """A line of another tuner's log; fields that a query did not read have defaults.

    Latencies are comparable only within one task and target.
    """

    format: str
    task: str  # the log's own key of the program
    target: str  # as the log writes it
    steps: str  # the candidate's schedule steps, as JSON
    outcome: Outcome
    failure: str | None = None  # the log's failure code
    run_us: tuple[float, ...] = ()
    measured_at: float | None = None  # None: the log does not say
    latency_us: float | None = None  # the median of `run_us`

    def __post_init__(self) -> None:
        if self.latency_us is None and self.run_us:
            object.__setattr__(self, "latency_us", median(self.run_us))

    @cached_property
    def task_key(self) -> str:
        """Key of the task, the same in every file."""
        return _hash(self.format, self.task, self.target).hex()

    @cached_property
    def key(self) -> bytes:
        """The record's key, a hash of its fields: grown files can be imported again."""
        return _hash(self.task_key, self.steps, self.outcome, self.failure, self.run_us, self.measured_at)


class ForeignRecords(Repository):
    """Records of other tuners. No query for schedules reads this table."""

    def sample(self, format: str, limit: int) -> Iterator[ForeignTrial]:
        """Yield about `limit` records of a log format by task, with each task's best."""
        has_format = ForeignRecord.task_id.in_(select(ForeignTask.id).where(ForeignTask.format == format))
        count = self.session.scalar(select(func.count()).select_from(ForeignRecord).where(has_format)) or 0
        best = (
            select(ForeignRecord.task_id, func.min(ForeignRecord.latency_us).label("us"))
            .where(has_format)
            .group_by(ForeignRecord.task_id)
            .subquery()
        )
        step = max(1, -(-count // limit))
        is_sampled = ForeignRecord.id % step == 0, ForeignRecord.latency_us == best.c.us
        columns = ForeignRecord.steps, ForeignRecord.outcome, ForeignRecord.latency_us
        query = (
            select(ForeignTask.task, ForeignTask.target, *columns)
            .join(ForeignTask, ForeignTask.id == ForeignRecord.task_id)
            .join(best, best.c.task_id == ForeignRecord.task_id)
            .where(or_(*is_sampled))
            .order_by(ForeignRecord.task_id, ForeignRecord.id)
        )
        for row in self.session.execute(query):
            yield ForeignTrial(
                format=format,
                task=row.task,
                target=row.target,
                steps=unpack_text(row.steps),
                outcome=Outcome(row.outcome),
                latency_us=row.latency_us,
            )

    def add(self, records: Sequence[ForeignTrial]) -> int:
        """Store records that are not stored yet; return how many there were."""
        if not records:
            return 0
        tasks = [
            {"key": key, "format": record.format, "task": record.task, "target": record.target}
            for key, record in sorted({record.task_key: record for record in records}.items())
        ]
        self.execute_for_rows(self.insert(ForeignTask).on_conflict_do_nothing(index_elements=["key"]), tasks)
        keys = self.is_among(ForeignTask.key, [task["key"] for task in tasks])
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
        return self.execute_for_rows(
            self.insert(ForeignRecord).on_conflict_do_nothing(index_elements=["key"]), values
        )


def _hash(*parts: object) -> bytes:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).digest()
