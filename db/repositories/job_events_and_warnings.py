"""Events of a job, numbered in commit order, and its warnings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import insert, select, update

from db.repositories.base import Repository
from db.tables import Event, Job
from mallorn.core.errors import NotFound
from mallorn.core.values.event import JobEvent, WarningEvent, read_event
from mallorn.core.values.job import JobWarning

Known = TypeVar("Known", bound=JobEvent)


class Events(Repository):
    """What happened to a job.

    A number is drawn from the job's row, whose lock is held until the transaction ends: whoever sees
    event n sees all before it, so a reader that resumes after n skips nothing.
    """

    def append(self, job_id: str, event: JobEvent) -> int:
        """Write the job's next event and return its number; raises NotFound."""
        drawn = update(Job).where(Job.id == job_id).values(event_count=Job.event_count + 1)
        seq: int | None = self.session.scalar(drawn.returning(Job.event_count))
        if seq is None:
            raise NotFound(f"there is no job {job_id}", hint="mallorn jobs")
        self.session.execute(
            insert(Event).values(job_id=job_id, seq=seq, kind=event.kind, payload=event.payload())
        )
        return seq

    def after(self, job_id: str, seq: int, limit: int = 100) -> list[Event]:
        """The events that follow number `seq`, in order; `seq` 0 starts from the first."""
        query = select(Event).where(Event.job_id == job_id, Event.seq > seq).order_by(Event.seq).limit(limit)
        return list(self.session.scalars(query))

    def newest(self, job_id: str, kind: type[Known]) -> Known | None:
        """The last event of a kind, if there was any that this version can read."""
        return self.newest_of([job_id], kind).get(job_id)

    def newest_of(self, job_ids: Sequence[str], kind: type[Known]) -> dict[str, Known]:
        """By job the last event of a kind, where there was any that this version can read."""
        name = kind.model_fields["kind"].default
        last = select(Event.payload).where(Event.job_id == Job.id, Event.kind == name)
        payload = last.order_by(Event.seq.desc()).limit(1).correlate(Job).scalar_subquery()
        rows = self.session.execute(select(Job.id, payload).where(Job.id.in_(job_ids)))
        found = {job_id: read_event(name, told) for job_id, told in rows if told is not None}
        return {job_id: event for job_id, event in found.items() if isinstance(event, kind)}


MOST_KEPT: Final = 20  # different ones of a job: after those, what is new says nothing new


@dataclass(frozen=True, slots=True)
class NewJobWarning:
    """Who has trouble, what it is, and what to do about it."""

    source: str
    message: str
    hint: str = ""


class Warnings(Repository):
    """The warnings of jobs; equal ones are one that counts."""

    def add(self, job_id: str, warn: NewJobWarning) -> None:
        """Keep a warning with the job, and tell who follows it when it is the first of its kind."""
        self.lock_job(job_id)
        kept = self.session.scalars(select(Job.warnings).where(Job.id == job_id)).one()
        told = JobWarning(source=warn.source, message=warn.message, hint=warn.hint, count=1)
        known = [
            one.model_copy(update={"count": one.count + 1})
            if one.model_copy(update={"count": 1}) == told
            else one
            for one in kept
        ]
        is_new = known == kept
        if is_new and len(kept) >= MOST_KEPT:
            return
        changed = [*kept, told] if is_new else known
        self.changed(update(Job).where(Job.id == job_id).values(warnings=changed))
        if is_new:
            Events(self.session).append(
                job_id, WarningEvent(source=warn.source, message=warn.message, hint=warn.hint)
            )
