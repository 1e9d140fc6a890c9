"""Gathers what a report tells of a job."""

from collections.abc import Iterator

from db.paging import MAX_LIMIT
from mallorn.core.outcomes import Outcome
from mallorn.core.values.dataset import Record
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.report.story import FAILURES_READ, Story
from services.coordinator.jobs.rounds import RoundOrder, list_rounds
from services.coordinator.jobs.schemas import JobOut
from services.coordinator.jobs.service import get_job, list_tasks
from services.coordinator.records.service import list_records
from services.coordinator.web.parts import Parts


def story_of(parts: Parts, owner: str, job_id: str) -> Story:
    """A job by its id or the beginning of it, in the same values as over HTTP. Raises NotFound."""
    job = get_job(parts, owner, job_id)
    tasks = [TaskStatus.model_validate(task.model_dump()) for task in list_tasks(parts, owner, job.id).items]
    shown = JobStatus.model_validate(job.model_dump())
    return Story.of(shown, tasks, _rounds(parts, owner, job), _failed(parts, owner, job))


def _rounds(parts: Parts, owner: str, job: JobOut) -> Iterator[RoundStatus]:
    """All of them, oldest first."""
    cursor, more = None, True
    while more:
        found = list_rounds(parts, owner, job.id, None, RoundOrder.OLDEST, cursor, MAX_LIMIT)
        yield from (RoundStatus.model_validate(row.model_dump()) for row in found.items)
        cursor = found.next_cursor
        more = cursor is not None


def _failed(parts: Parts, owner: str, job: JobOut) -> list[Record]:
    """Of each outcome the newest."""
    pages = (
        list_records(parts, owner, job.id, None, None, Outcome(outcome), None, FAILURES_READ)
        for outcome in job.progress.failures
    )
    return [Record.model_validate(record.model_dump()) for page in pages for record in page.items]
