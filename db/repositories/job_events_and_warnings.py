"""Events of a job, numbered in commit order, and its warnings."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

from sqlalchemy import ColumnElement, insert, select, update

from mallorn.core.values.event import JobEvent, WarningEvent, read_event
from mallorn.core.values.job import JobStep, JobWarning
from mallorn.db.repositories.base import UNEXPLAINED, Repository, require_row
from mallorn.db.tables import Event, Job

EventType = TypeVar("EventType", bound=JobEvent)
MOST_KEPT: Final = 20  # limit of different warnings per job; further ones are dropped


class Events(Repository):
    """The event log of a job.

    An event's number comes from the job's row, which stays locked until the transaction
    ends: a reader that sees event n sees all earlier events and may resume after n.
    """

    def append(self, job_id: str, event: JobEvent) -> int:
        """Append an event to a job's log and return its number, or raise NotFound."""
        return require_row(self._append(event, Job.id == job_id), f"job {job_id}", "mallorn jobs")

    def append_with_step(self, job_id: str, event: JobEvent, step: JobStep | None, waits: bool) -> bool:
        """Append an event to the log of an active job, and set what is done for the job, which waits
        no more. Unless `waits`, do nothing while another transaction has the job's row locked;
        return whether the event is appended."""
        row = Job.id == job_id
        if not waits:
            free = select(Job.id).where(row).with_for_update(key_share=True, skip_locked=True)
            row = Job.id.in_(free)
        return self._append(event, row, **UNEXPLAINED | {"step": step}) is not None

    def _append(self, event: JobEvent, row: ColumnElement[bool], **columns: object) -> int | None:
        """Append an event to the log of the job at `row`, if there is one; return its number."""
        statement = update(Job).where(row).values(event_count=Job.event_count + 1, **columns)
        numbered = self.session.execute(statement.returning(Job.id, Job.event_count)).one_or_none()
        if numbered is None:
            return None
        job_id, seq = numbered
        fields = {"kind": event.kind, "payload": event.payload()}
        self.session.execute(insert(Event).values(job_id=job_id, seq=seq, **fields))
        return int(seq)

    def after(self, job_id: str, seq: int, limit: int = 100) -> list[Event]:
        """Return up to `limit` events after number `seq`, in order; numbers start at 1."""
        query = select(Event).where(Event.job_id == job_id, Event.seq > seq).order_by(Event.seq).limit(limit)
        return list(self.session.scalars(query))

    def newest(self, job_id: str, kind: type[EventType]) -> EventType | None:
        """Return the last event of a kind that this version can read, or None."""
        return self.find_newest_by_job([job_id], kind).get(job_id)

    def find_newest_by_job(self, job_ids: Sequence[str], kind: type[EventType]) -> dict[str, EventType]:
        """Return each job's last event of a kind; leave out jobs without a readable one."""
        name = kind.model_fields["kind"].default
        last_event = select(Event.payload).where(Event.job_id == Job.id, Event.kind == name)
        payload = last_event.order_by(Event.seq.desc()).limit(1).correlate(Job).scalar_subquery()
        rows = self.session.execute(select(Job.id, payload).where(Job.id.in_(job_ids)))
        events = {job_id: read_event(name, fields) for job_id, fields in rows if fields is not None}
        return {job_id: event for job_id, event in events.items() if isinstance(event, kind)}


@dataclass(frozen=True, slots=True)
class NewJobWarning:
    """A warning for a job's owner: its source, the problem, and what the owner can do."""

    source: str
    message: str
    hint: str = ""


class Warnings(Repository):
    """The warnings of jobs. Equal warnings are stored once, with a count."""

    def add(self, job_id: str, warn: NewJobWarning) -> None:
        """Store a warning and log an event, or count a repeat; keep at most MOST_KEPT."""
        self.lock_jobs([job_id])
        warnings = list(self.session.scalars(select(Job.warnings).where(Job.id == job_id)).one())
        new = JobWarning(**asdict(warn), count=1)
        for index, warning in enumerate(warnings):
            if warning.model_copy(update={"count": 1}) == new:
                warnings[index] = warning.model_copy(update={"count": warning.count + 1})
                break
        else:
            if len(warnings) >= MOST_KEPT:
                return
            warnings.append(new)
            Events(self.session).append(job_id, WarningEvent(**asdict(warn)))
        self.execute_and_count(update(Job).where(Job.id == job_id).values(warnings=warnings))
