"""Route for the report of a job as one HTML page."""

import time
from collections.abc import Iterator

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from mallorn.core.outcomes import Outcome
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus
from mallorn.db.paging import MAX_LIMIT
from mallorn.report.report_page import FAILURES_READ, ReportData, render_report_page
from mallorn.report.style_and_csp import SERVED
from mallorn.services.coordinator.jobs.list_and_show import RoundOrder, get_job, list_rounds, list_tasks
from mallorn.services.coordinator.records_and_stats import list_records
from mallorn.services.coordinator.web.app_parts import AppParts, PartsDep
from mallorn.services.coordinator.web.caller_dependencies import FewAtOnce, OwnerDep
from mallorn.services.coordinator.web.response_types import TEXT, describe_response

router = APIRouter(prefix="/jobs", tags=["jobs"])
HTML = describe_response("text/html", "A self-contained page.", TEXT)


# Not response_class=HTMLResponse: the OpenAPI document would then list errors as HTML, too.
@router.get("/{job_id}/report", response_class=Response, responses=HTML, dependencies=[FewAtOnce])
def get_job_report(parts: PartsDep, owner: OwnerDep, job_id: str) -> HTMLResponse:
    """Return the report of a job as one HTML page, as `mallorn jobs report` writes it."""
    job = get_job(parts, owner, job_id)
    tasks = list_tasks(parts, owner, job.id).items
    newest_failures = [
        record
        for outcome in map(Outcome, job.progress.failures)
        for record in list_records(parts, owner, job=job.id, outcome=outcome, limit=FAILURES_READ).items
    ]
    story = ReportData.of(job, tasks, _rounds(parts, owner, job), newest_failures)
    return HTMLResponse(render_report_page(story, time.time()), headers={"Content-Security-Policy": SERVED})


def _rounds(parts: AppParts, owner: str, job: JobStatus) -> Iterator[RoundStatus]:
    cursor = None
    while True:
        page = list_rounds(parts, owner, job.id, None, RoundOrder.OLDEST, cursor, MAX_LIMIT)
        yield from page.items
        if (cursor := page.next_cursor) is None:
            return
