"""Looks at jobs."""

from db.repositories.jobs import ACTIVE, Jobs
from db.repositories.stock import Stock
from db.repositories.tasks import Tasks
from mallorn.core.states import Cause, JobState
from mallorn.core.values.job import JobStatus, TaskStatus
from services.coordinator.jobs.views import job_out, jobs_out, task_out
from services.coordinator.web.disk import full_disk_words
from services.coordinator.web.paging import ListOut, PageOut
from services.coordinator.web.parts import Parts


def list_jobs(
    parts: Parts, owner: str, state: JobState | None, archived: bool, cursor: str | None, limit: int
) -> PageOut[JobStatus]:
    with parts.database.session() as session:
        page = Jobs(session).list(owner, state, cursor, limit, archived=archived)
        items = jobs_out(session, page.items)
    return PageOut(items=items, next_cursor=page.cursor)


def get_job(parts: Parts, owner: str, job_id: str) -> JobStatus:
    with parts.database.session() as session:
        job = job_out(session, Jobs(session).find(job_id, owner))
    if job.state in ACTIVE and (words := full_disk_words(parts.settings)):
        return job.model_copy(update={"reason": words, "cause": Cause.OTHER})
    return job


def list_tasks(parts: Parts, owner: str, job_id: str) -> ListOut[TaskStatus]:
    with parts.database.session() as session:
        state = JobState(Jobs(session).get(job_id, owner).state)
        found, stock_us = Tasks(session).summaries(job_id), Stock(session).best_us(job_id)
        return ListOut(items=[task_out(task, state, stock_us.get(task.id)) for task in found])
