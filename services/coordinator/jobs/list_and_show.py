"""Routes that list and show jobs, their tasks, rounds and reports, and measurements of the dataset."""

import os
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse
from sqlalchemy import make_url

from mallorn.core.api_keys import Scope
from mallorn.core.errors import NotFound, StorageFull
from mallorn.core.labels import MOST_LABELS, LabelText
from mallorn.core.outcomes import Outcome
from mallorn.core.settings import Settings
from mallorn.core.states import Cause, JobState
from mallorn.core.targets import parse_target
from mallorn.core.values.dataset import DatasetStats, Record
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.db.repositories.base import MAX_LIMIT
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.decision_log import DecisionLog
from mallorn.db.repositories.jobs import ACTIVE, JobFilter, Jobs
from mallorn.db.repositories.measurements import Records
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import Stock, Tasks
from mallorn.report.report_page import FAILURES_READ, ReportData, render_report_page
from mallorn.report.style_and_csp import SERVED
from mallorn.services.coordinator.jobs.job_views import hide_private_results, job_out, jobs_out, task_out
from mallorn.services.coordinator.web import response_types
from mallorn.services.coordinator.web.app_parts import AppParts, PartsDep
from mallorn.services.coordinator.web.caller_dependencies import CallerDep, FewAtOnce, JobOwnerDep, OwnerDep

# With less free space, SQLite may fail to commit.
LEAST_BYTES: Final = 256 * 1024
router = APIRouter(prefix="/jobs", tags=["jobs"])
dataset_router = APIRouter(tags=["dataset"])
HTML = response_types.describe_response("text/html", "A self-contained page.", response_types.TEXT)
TimeQuery = Annotated[
    float | None,
    Query(allow_inf_nan=False, description="Limit of the time of submission, in seconds since the epoch."),
]


def describe_full_disk(settings: Settings) -> str:
    """Return the disk-full message if the SQLite database has no room; otherwise empty."""
    url = make_url(settings.database_url)
    if url.get_backend_name() != "sqlite" or not url.database:
        return ""
    disk = os.statvfs(os.path.dirname(os.path.abspath(url.database)))
    return StorageFull().message if disk.f_bavail * disk.f_frsize < LEAST_BYTES else ""


@router.get("")
def list_jobs(
    parts: PartsDep,
    caller: CallerDep,
    state: Annotated[list[JobState] | None, Query(description="Only jobs in one of these states.")] = None,
    archived: Annotated[bool, Query(description="List only archived jobs instead.")] = False,
    all_owners: Annotated[bool, Query(description="Jobs of all owners; admins only.")] = False,
    owner: Annotated[
        str | None, Query(max_length=200, description="Jobs of this owner; admins only.")
    ] = None,
    name: Annotated[
        str, Query(max_length=200, description="Only if this is in the name, or begins the id.")
    ] = "",
    label: Annotated[
        list[LabelText] | None,
        Query(max_length=MOST_LABELS, description="Only jobs with all these labels: `key` or `key=value`."),
    ] = None,
    model: Annotated[
        str, Query(pattern="^[0-9a-f]{0,64}$", description="Only jobs of the model whose id begins so.")
    ] = "",
    created_after: TimeQuery = None,
    created_before: TimeQuery = None,
    cursor: response_types.CursorQuery = None,
    limit: response_types.LimitQuery = 50,
) -> response_types.PageOut[JobStatus]:
    """List the caller's jobs, newest first, or with `all_owners` those of every owner."""
    if all_owners or owner not in (None, caller.owner):
        caller.require_any_scope((Scope.ADMIN,))
    pairs = [text.partition("=") for text in label or ()]
    job_filter = JobFilter(
        states=state or (),
        archived=archived,
        name=name,
        labels=[(key, value if equals else None) for key, equals, value in pairs],
        model=model,
        created_after=created_after,
        created_before=created_before,
        viewer=caller.owner,
    )
    with parts.database.session() as session:
        listed_owner = owner or (None if all_owners else caller.owner)
        page = Jobs(session).list(listed_owner, job_filter, cursor, limit)
        items = [hide_private_results(caller.owner, job) for job in jobs_out(session, page.items)]
    return response_types.PageOut(items=items, next_cursor=page.cursor)


@router.get("/{job_id}")
def show_job(parts: PartsDep, owner: JobOwnerDep, caller: CallerDep, job_id: str) -> JobStatus:
    """Show the job with this id or unique id prefix: state, progress and reports."""
    return hide_private_results(caller.owner, get_job(parts, owner, job_id))


def get_job(parts: AppParts, owner: str, job_id: str) -> JobStatus:
    """Return a job as its owner sees it; if the disk is full, it waits for room."""
    with parts.database.session() as session:
        job = job_out(session, Jobs(session).find(job_id, owner))
        job = job.model_copy(update={"device_use": Rounds(session).device_use(job.id)})
    if job.state in ACTIVE and (words := describe_full_disk(parts.settings)):
        return job.model_copy(update={"waiting_because": words, "hint": "", "cause": Cause.OTHER})
    return job


@router.get("/{job_id}/tasks")
def list_tasks(parts: PartsDep, owner: OwnerDep, job_id: str) -> response_types.ListOut[TaskStatus]:
    """List a job's tasks like MetaSchedule's task table; empty until the import ends."""
    with parts.database.session() as session:
        state = JobState(Jobs(session).get(job_id, owner).state)
        stock_us = Stock(session).best_us_by_task(job_id)
        tasks = Tasks(session).summaries(job_id)
        return response_types.ListOut(items=[task_out(task, state, stock_us.get(task.id)) for task in tasks])


class RoundOrder(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"


TaskQuery = Annotated[
    int | None, Query(ge=0, le=response_types.MAX_INT, description="Only rounds of the task with this index.")
]
OrderQuery = Annotated[
    RoundOrder, Query(description="`newest` or `oldest` first; use the same for all pages.")
]


@router.get("/{job_id}/rounds")
def list_rounds(
    parts: PartsDep,
    owner: OwnerDep,
    job_id: str,
    task: TaskQuery = None,
    order: OrderQuery = RoundOrder.NEWEST,
    cursor: response_types.CursorQuery = None,
    limit: response_types.LimitQuery = 50,
) -> response_types.PageOut[RoundStatus]:
    """List a job's rounds: why each was planned, its forecast and its results."""
    with parts.database.session() as session:
        Jobs(session).get(job_id, owner)
        if task is not None and task not in {row.index for row in Tasks(session).list(job_id)}:
            raise NotFound(f"job {job_id} has no task {task}", hint=f"mallorn jobs tasks {job_id}")
        oldest_first = order is RoundOrder.OLDEST
        page = DecisionLog(session).list(
            job_id, task_index=task, oldest_first=oldest_first, cursor=cursor, limit=limit
        )
    return response_types.PageOut(items=page.items, next_cursor=page.cursor)


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


@dataset_router.get("/records")
def list_records(
    parts: PartsDep,
    owner: OwnerDep,
    job: Annotated[str | None, Query(description="Only measurements of this job.")] = None,
    workload: Annotated[str | None, Query(description="Only measurements of this workload key.")] = None,
    target: Annotated[str | None, Query(description="Only measurements for this target.")] = None,
    outcome: Annotated[Outcome | None, Query(description="Only with this outcome.")] = None,
    cursor: response_types.CursorQuery = None,
    limit: response_types.LimitQuery = 100,
) -> response_types.PageOut[Record]:
    """List measurements of the caller's jobs, newest first."""
    target_key = parse_target(target).key if target else None
    with parts.database.session() as session:
        if job is not None:  # otherwise a mistyped id would give an empty page
            Jobs(session).check_owner_had_job(job, owner)
        page = Records(session).page(
            owner,
            job_id=job,
            workload=workload,
            target=target_key,
            outcome=outcome,
            cursor=cursor,
            limit=limit,
        )
    return response_types.PageOut(items=page.items, next_cursor=page.cursor)


@dataset_router.get("/dataset/stats", dependencies=[FewAtOnce])
def get_dataset_stats(parts: PartsDep, owner: OwnerDep) -> DatasetStats:
    """Count the caller's measurements by target, operator, model, outcome and day."""
    with parts.patient.session() as session:
        return Statistics(session).of(owner)
