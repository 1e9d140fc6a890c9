"""What went wrong in a job without ending it."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import select, update

from db.repositories.base import Repository
from db.repositories.events import Events
from db.tables import Job
from mallorn.core.values.event import WarningEvent
from mallorn.core.values.job import JobWarning

MOST_KEPT: Final = 20  # different ones of a job: after those, what is new says nothing new


@dataclass(frozen=True, slots=True)
class Warn:
    """Who has trouble, what it is, and what to do about it."""

    source: str
    message: str
    hint: str = ""


class Warnings(Repository):
    """The warnings of jobs; equal ones are one that counts."""

    def add(self, job_id: str, warn: Warn) -> None:
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
