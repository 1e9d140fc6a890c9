"""Gives the tasks of a job their families."""

from sqlalchemy.orm import Session

from db.repositories.tasks import Tasks
from db.tables import Job
from mallorn.core.names import resolve
from mallorn.core.options import JobOptions


def group(session: Session, job: Job, options: JobOptions) -> None:
    """Give every new task its family."""
    tasks = Tasks(session)
    grouping = resolve("families", options.families)
    new = [task for task in tasks.summaries(job.id) if not task.family]
    tasks.set_families({task.id: grouping(task.op, task.structure) for task in new})
