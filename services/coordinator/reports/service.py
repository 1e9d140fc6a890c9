"""Gathers what a report tells of a job."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from db.paging import MAX_LIMIT
from mallorn.core.outcomes import Outcome
from mallorn.report.story import FAILURES_READ, Story
from services.coordinator.jobs.rounds import RoundOrder, list_rounds
from services.coordinator.jobs.schemas import JobOut
from services.coordinator.jobs.service import get_job, list_tasks
from services.coordinator.records.service import list_records
from services.coordinator.web.parts import Parts

Row = dict[str, Any]


def story_of(parts: Parts, owner: str, job_id: str) -> Story:
    """A job by its id or the beginning of it, in the same rows as over HTTP. Raises NotFound."""
    job = get_job(parts, owner, job_id)
    tasks = [_row(task) for task in list_tasks(parts, owner, job.id).items]
    return Story.of(_row(job), tasks, _rounds(parts, owner, job), _failed(parts, owner, job))


def _rounds(parts: Parts, owner: str, job: JobOut) -> Iterator[Row]:
    """All of them, oldest first."""
    cursor, more = None, True
    while more:
        found = list_rounds(parts, owner, job.id, None, RoundOrder.OLDEST, cursor, MAX_LIMIT)
        yield from map(_row, found.items)
        cursor = found.next_cursor
        more = cursor is not None


def _failed(parts: Parts, owner: str, job: JobOut) -> list[Row]:
    """Of each outcome the newest."""
    pages = (
        list_records(parts, owner, job.id, None, None, Outcome(outcome), None, FAILURES_READ)
        for outcome in job.progress.failures
    )
    return [_row(record) for page in pages for record in page.items]


def _row(shown: BaseModel) -> Row:
    return shown.model_dump(mode="json")
