"""Looks at jobs."""

from db.repositories.jobs import ACTIVE, Jobs
from db.repositories.rounds import Rounds
from db.repositories.tasks import Tasks
from mallorn.core.states import JobState
from services.coordinator.disk import full_disk_words
from services.coordinator.jobs.schemas import JobOut, RoundOut, TaskOut
from services.coordinator.jobs.views import job_out, round_out, task_out
from services.coordinator.paging import ListOut, PageOut
from services.coordinator.parts import Parts


def list_jobs(
    parts: Parts, owner: str, state: JobState | None, cursor: str | None, limit: int
) -> PageOut[JobOut]:
    with parts.database.session() as session:
        page = Jobs(session).list(owner, state, cursor, limit)
        items = [job_out(session, job) for job in page.items]
    return PageOut(items=items, next_cursor=page.cursor)


def get_job(parts: Parts, owner: str, job_id: str) -> JobOut:
    with parts.database.session() as session:
        job = job_out(session, Jobs(session).get(job_id, owner))
    if job.state in ACTIVE and (words := full_disk_words(parts.settings)):
        return job.model_copy(update={"reason": words})
    return job


def list_tasks(parts: Parts, owner: str, job_id: str) -> ListOut[TaskOut]:
    with parts.database.session() as session:
        state = JobState(Jobs(session).get(job_id, owner).state)
        return ListOut(items=[task_out(task, state) for task in Tasks(session).summaries(job_id)])


def list_rounds(parts: Parts, owner: str, job_id: str, cursor: str | None, limit: int) -> PageOut[RoundOut]:
    with parts.database.session() as session:
        Jobs(session).get(job_id, owner)
        index_of = {task.id: task.index for task in Tasks(session).list(job_id)}
        page = Rounds(session).list(job_id, cursor, limit)
    return PageOut(
        items=[round_out(row, index_of[row.task_id]) for row in page.items], next_cursor=page.cursor
    )
