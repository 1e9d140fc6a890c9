"""Whose model is imported next, however many one owner has submitted."""

from sqlalchemy import func, select

from db.repositories.base import Repository
from db.repositories.jobs import Jobs
from db.tables import Job, LeaseRow
from mallorn.core.states import JobState, WorkKind


class ModelImportQueue(Repository):
    """Jobs that wait to be imported. Their messages come in the order of submission, and name one each."""

    def begin(self, job_id: str) -> str:
        """The job to import for this one's message: that of the owner whose turn is longest ago.

        One that came back is imported for its own message alone: another may be all that it waits for.
        """
        while not self._came_back(job_id) and (chosen := self._next()) is not None:
            if Jobs(self.session).move(chosen, [JobState.QUEUED], JobState.IMPORTING):
                return chosen
        return job_id

    def _came_back(self, job_id: str) -> bool:
        free = LeaseRow.kind == WorkKind.IMPORT, LeaseRow.until.is_(None), LeaseRow.sent_at.is_not(None)
        begun = Job.id == job_id, Job.state == JobState.IMPORTING, LeaseRow.subject == Job.id
        return self.session.scalar(select(Job.id).where(*begun, *free)) is not None

    def _next(self) -> str | None:
        last = select(Job.owner, func.coalesce(func.max(Job.started_at), 0.0).label("at"))
        turn = last.group_by(Job.owner).subquery()
        queued = select(Job.id).join(turn, turn.c.owner == Job.owner).where(Job.state == JobState.QUEUED)
        order = turn.c.at, Job.priority.desc(), Job.created_at, Job.id
        return self.session.scalar(queued.order_by(*order).limit(1))
