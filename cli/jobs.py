"""Commands that submit, list and show jobs."""

import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.read_only_client import FIRST_STEP, find_job, reader, source
from cli.terminal.job_options import Choices, EffortOptions
from cli.terminal.option_groups import shared
from cli.terminal.output import (
    JsonOption,
    NewestJobArgument,
    Place,
    client,
    fact_table,
    print_json,
    print_note,
    print_rows,
    stdout,
    table,
)
from cli.terminal.progress_bars import upload_with_bar
from cli.watch.result_table import print_fetch, print_verdict
from mallorn.core.errors import NotFound
from mallorn.core.states import JobState
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.results.speedup import beside_onnxruntime
from mallorn.wording.format_values import (
    AUTO,
    Cell,
    Column,
    duration,
    first_line,
    headroom,
    latency,
    moment,
    spent_of,
)
from mallorn.wording.results import (
    ENGINE_COLUMNS,
    POINT_COLUMNS,
    failures,
    latency_rows,
    left_undone,
    warnings,
)
from mallorn.wording.tasks import (
    ANSWER_COLUMNS,
    FAMILY_COLUMNS,
    kinships,
    rests_on,
    stock_words,
    task_columns,
)

JOB_COLUMNS: Final = (
    Column[JobStatus]("JOB", lambda job: job.id),
    Column[JobStatus]("NAME", lambda job: job.name),
    Column[JobStatus]("STATE", lambda job: job.state),
    Column[JobStatus]("TRIALS", lambda job: spent_of(job, "/")),
    Column[JobStatus]("LATENCY", lambda job: latency(job.median_us("tuned") or job.progress.estimated_us)),
    Column[JobStatus](
        "VS ONNXRUNTIME", lambda job: str(beside_onnxruntime(job.finish_report.latency_us) or "")
    ),
    Column[JobStatus]("AGE", lambda job: duration(time.time() - job.created_at)),
    Column[JobStatus]("REASON", lambda job: first_line(job.reason)),
)

OWNER_COLUMN: Final = Column[JobStatus]("OWNER", lambda job: job.owner)


@shared
def submit(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="An ONNX file, or the id of an uploaded model.")
    ],
    effort: EffortOptions,
    name: Annotated[str | None, typer.Option(help="A name for people; default: the file's.")] = None,
    priority: Annotated[int, typer.Option(help="Higher goes first.")] = 0,
    *,
    choices: Choices,
    as_json: JsonOption = False,
    place: Place,
) -> None:
    """Hand in a model to be tuned, and return at once."""
    options = choices.asked()
    file = Path(model)
    job_name = name or (file.stem if file.is_file() else None)
    with client(*place) as api:
        model_id = upload_with_bar(api, model)
        job = api.tune(model_id, *effort, job_name, priority, **options)
    if as_json:
        print_json(job.body)
        return
    stdout().print(job.id)
    print_note(f"submitted; follow it with   mallorn watch {job.id}")


@shared
def jobs(
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Those that were archived.")] = False,
    all_owners: Annotated[bool, typer.Option("--all-owners", help="Everybody's: for admins.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """List jobs, newest first."""
    with reader(*place) as api:
        handles = list(islice(api.jobs(state, archived, all_owners), limit))
    if as_json:
        print_json([job.body for job in handles])
        return
    kind = state or ("archived" if archived else None)
    empty = f"no {kind} jobs" if kind else f"no jobs yet; hand one in with   {FIRST_STEP}"
    columns = (OWNER_COLUMN, *JOB_COLUMNS) if all_owners else JOB_COLUMNS
    print_rows([job.status for job in handles], columns, False, empty)


@shared
def show(job: NewestJobArgument = None, as_json: JsonOption = False, *, place: Place) -> None:
    """Show one job: its budget, what was found and what went wrong."""
    with source(*place) as origin:
        handle = find_job(origin.api, job)
        rows = []
        with suppress(NotFound):  # an admin may see another owner's job, but not its tasks
            rows = [] if as_json else handle.tasks()
    status, report = handle.status, handle.status.finish_report
    if as_json:
        print_json(handle.body)
        return
    stdout().print(fact_table("JOB", status.id, _facts(status, rows)))
    timed = latency_rows(report.latency_us)
    if timed:
        stdout().print()
        stdout().print(table(timed, ENGINE_COLUMNS))
    if report.points:
        stdout().print()
        stdout().print(table(report.points, POINT_COLUMNS))
    if report.answers:
        stdout().print()
        stdout().print(table(report.answers.items(), ANSWER_COLUMNS))
    stdout().print()
    for line in rests_on(report) + left_undone(report) + warnings(status):
        stdout().print(line, markup=False)
    print_verdict(status.verdict, origin.words)
    print_fetch(status, origin.words)
    if status.export_deleted_at is not None:
        print_note(f"its exported schedules were deleted at {moment(status.export_deleted_at)}")


def _facts(job: JobStatus, rows: Sequence[TaskStatus]) -> dict[str, Cell]:
    progress = job.progress
    estimate = f"{latency(progress.estimated_us)}, the sum over its tasks"
    return {
        "name": job.name,
        "state": job.state,
        "reason": job.reason,
        "model": job.model_id,
        "target": job.target,
        "trials": spent_of(job),
        "minutes": job.minutes,
        "budget": AUTO if job.auto else None,
        "private": "kept from other owners" if job.options.is_private else None,
        "tasks": f"{progress.tasks_measured} of {progress.tasks} measured",
        "failures": failures(progress),
        "estimate": None if progress.estimated_us is None else estimate,
        "headroom": headroom(job) or None,
        "stock's tuner": stock_words(rows),
    }


@shared
def tasks(job: NewestJobArgument = None, as_json: JsonOption = False, *, place: Place) -> None:
    """Print MetaSchedule's table of a job's tasks, and which of them share a cost model and why."""
    with source(*place) as origin:
        handle = find_job(origin.api, job)
        rows = handle.tasks()
    empty = f"no tasks yet: the model was not imported; look at   mallorn show {handle.id}{origin.words}"
    print_rows(rows, task_columns(rows), as_json, empty)
    if not as_json and (families := kinships(rows)):
        stdout().print()
        stdout().print(table(families, FAMILY_COLUMNS))
