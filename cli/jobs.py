"""Commands on jobs: submit, list, show, follow, pause, cancel, label, archive and delete them."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from mallorn.cli import find_client_and_job
from mallorn.cli.dataset_options import to_seconds
from mallorn.cli.live_view import show_until_ended
from mallorn.cli.print_job_result import print_fetch, print_result, print_verdict
from mallorn.cli.terminal import job_options, output
from mallorn.cli.terminal.progress_bars import upload_with_bar
from mallorn.client.job import Job
from mallorn.client.onnx_export import as_onnx
from mallorn.client.progress_lines import FirstExport
from mallorn.core.errors import Conflict, ExitCode, NotFound
from mallorn.core.labels import format_labels, parse_labels
from mallorn.core.states import JobState
from mallorn.core.targets import LOCAL
from mallorn.core.values.job import JobStatus
from mallorn.results.speedup import compare_with_onnxruntime
from mallorn.wording import describe_results
from mallorn.wording.format_values import (
    AUTO,
    Cell,
    Column,
    describe_headroom,
    format_duration,
    format_latency,
    format_moment,
    format_spent_trials,
)

T = TypeVar("T")
JOB_COLUMNS: Final = (
    Column[JobStatus]("JOB", lambda job: job.id),
    Column[JobStatus]("NAME", lambda job: job.name),
    Column[JobStatus]("STATE", lambda job: job.state),
    Column[JobStatus]("TRIALS", lambda job: format_spent_trials(job, "/")),
    Column[JobStatus](
        "LATENCY", lambda job: format_latency(job.median_us("tuned") or job.progress.estimated_us)
    ),
    Column[JobStatus](
        "VS ONNXRUNTIME", lambda job: str(compare_with_onnxruntime(job.finish_report.latency_us) or "")
    ),
    Column[JobStatus]("AGE", lambda job: format_duration(time.time() - job.created_at)),
    Column[JobStatus]("WHY", lambda job: job.explanation),
)

OWNER_COLUMN: Final = Column[JobStatus]("OWNER", lambda job: job.owner)
LABEL_COLUMN: Final = Column[JobStatus]("LABELS", lambda job: format_labels(job.labels))
TIMES: Final = ["%Y-%m-%d", "%Y-%m-%dT%H:%M"]
JobsArgument = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Ids of jobs, or their beginnings.")
]


def submit(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="An ONNX file, or the id of an uploaded model.")
    ],
    target: job_options.TargetOption = LOCAL,
    *,
    effort: job_options.EffortOptions,
    auto: job_options.AutoOption = False,
    name: Annotated[str | None, typer.Option(help="Name of the job; default: the file's.")] = None,
    priority: Annotated[int, typer.Option(help="A job with a higher priority gets devices first.")] = 0,
    label: job_options.LabelOption = None,
    inputs: job_options.InputsOption = None,
    options: job_options.JobFlags,
    as_json: output.JsonOption = False,
    place: output.Place,
) -> None:
    """Submit a model to be tuned, and return at once."""
    file = Path(model)
    job_name = name or (file.stem if file.is_file() else None)
    labels = parse_labels(label or ())
    effort = job_options.limit_trials(effort, auto, options)
    with output.client(*place) as api, as_onnx(file) if file.is_file() else nullcontext(model) as upload:
        if file.is_file():
            from mallorn.cli.tune_and_resume import fix_free_dimensions  # no other command here needs it

            fix_free_dimensions(Path(upload), options, asks=not as_json)
        model_id = upload_with_bar(api, str(upload), inputs)
        job = api.submit(model_id, target, *effort, job_name, priority, labels=labels, **options)
    if as_json:
        return output.print_json(job.body)
    output.stdout().print(job.id)
    output.print_note(f"submitted; follow it with   mallorn watch {job.id}")


def jobs(
    state: Annotated[list[JobState] | None, typer.Option(help="Only jobs in this state; repeatable.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Only jobs with this in their name, or at the start of their id.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY[=VALUE]", help="Only jobs with this label; repeatable: with all of them."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="ID", help="Only jobs of the model whose id begins so.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this owner; for admins.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", formats=TIMES, help="Only jobs submitted from this time on, UTC."),
    ] = None,
    end_time: Annotated[
        datetime | None,
        typer.Option(
            "--before", metavar="TIME", formats=TIMES, help="Only jobs submitted before this time, UTC."
        ),
    ] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Only archived jobs.")] = False,
    all_owners: Annotated[bool, typer.Option("--all-owners", help="Jobs of all owners; for admins.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="List this many of the newest.")] = 50,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """List jobs, newest first."""
    with find_client_and_job.open_reader(*place) as api:
        matching_jobs = api.jobs(
            state,
            archived,
            all_owners,
            owner=owner,
            name=name,
            labels=label or (),
            model=model,
            created_after=to_seconds(since),
            created_before=to_seconds(end_time),
        )
        handles = list(islice(matching_jobs, limit))
    if as_json:
        return output.print_json([job.body for job in handles])
    is_filtered = any((name, label, model, owner, since, end_time, len(state or ()) > 1))
    kind = state[0] if state else ("archived" if archived else None)
    empty = f"no {kind} jobs" if kind else f"no jobs yet; hand one in with   {find_client_and_job.FIRST_STEP}"
    columns = (OWNER_COLUMN, *JOB_COLUMNS) if all_owners or owner else JOB_COLUMNS
    if any(job.status.labels for job in handles):
        columns = (*columns[:-1], LABEL_COLUMN, columns[-1])
    output.print_rows(
        [job.status for job in handles], columns, False, "no such jobs" if is_filtered else empty
    )


def show(
    job: output.NewestJobArgument = None, as_json: output.JsonOption = False, *, place: output.Place
) -> None:
    """Show one job: its budget, results and problems."""
    with find_client_and_job.open_source(*place) as origin:
        handle = find_client_and_job.find_job(origin.api, job)
        rows = []
        with suppress(NotFound):  # an admin may see another owner's job, but not its tasks
            rows = [] if as_json else handle.tasks()
    status, report = handle.status, handle.status.finish_report
    if as_json:
        return output.print_json(handle.body)
    progress = status.progress
    estimate = f"{format_latency(progress.estimated_us)}, the sum over its tasks"
    facts: dict[str, Cell] = {
        "name": status.name,
        "state": status.state,
        "why": status.waiting_because or status.ended_because or status.explanation,
        "hint": status.hint,
        "labels": format_labels(status.labels),
        "model": status.model_id,
        "target": status.target,
        "trials": format_spent_trials(status),
        "minutes": status.minutes,
        "budget": AUTO if status.has_auto_budget else None,
        "private": "kept from other owners" if status.options.private else None,
        "tasks": f"{progress.tasks_measured} of {progress.tasks} measured",
        "device": describe_results.describe_device_use(status),
        "failures": describe_results.describe_failures(progress),
        "estimate": None if progress.estimated_us is None else estimate,
        "headroom": describe_headroom(status) or None,
        "stock's tuner": describe_results.describe_stock_comparison(rows),
    }
    tables = [output.fact_table("JOB", status.id, facts)]
    if engines := describe_results.latency_rows(report.latency_us):
        tables.append(output.table(engines, describe_results.engine_columns(report.latency_us)))
    if report.points:
        tables.append(output.table(report.points, describe_results.POINT_COLUMNS))
    if report.unmeasured_schedules:
        tables.append(output.table(report.unmeasured_schedules.items(), describe_results.ANSWER_COLUMNS))
    for result in tables:
        output.stdout().print(result)
        output.stdout().print()
    for line in (
        describe_results.describe_schedule_sources(report)
        + describe_results.describe_skipped_steps(report)
        + describe_results.describe_warnings(status)
    ):
        output.stdout().print(line)
    print_verdict(status.verdict, origin.data_option)
    print_fetch(status, origin.data_option)
    if status.export_deleted_at is not None:
        output.print_note(f"its exported schedules were deleted at {format_moment(status.export_deleted_at)}")


def tasks(
    job: output.NewestJobArgument = None, as_json: output.JsonOption = False, *, place: output.Place
) -> None:
    """Print MetaSchedule's table of a job's tasks, and which of them share a cost model and why."""
    with find_client_and_job.open_source(*place) as origin:
        handle = find_client_and_job.find_job(origin.api, job)
        rows = handle.tasks()
    empty = (
        f"no tasks yet: the model was not imported; look at   mallorn show {handle.id}{origin.data_option}"
    )
    output.print_rows(rows, describe_results.task_columns(rows), as_json, empty)
    if not as_json and (families := describe_results.list_family_rows(rows)):
        output.stdout().print()
        output.stdout().print(output.table(families, describe_results.FAMILY_COLUMNS))


def watch(
    job: output.NewestJobArgument = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")] = False,
    *,
    place: output.Place,
) -> None:
    """Follow a job until it ends: with its curve and tasks on a terminal, else as lines of text.

    The result is printed last. Ctrl-C ends only this command, not the job.
    """
    with find_client_and_job.open_source(*place) as origin:
        handle = find_client_and_job.find_job(origin.api, job)
        find_client_and_job.check_active_job_has_service(origin, handle)
        try:
            if as_json:
                for event in handle.events():
                    output.print_json_line({"id": event.id, "kind": event.kind, "payload": event.payload})
            else:
                first = FirstExport(handle, f"mallorn schedules {handle.id}{origin.data_option}")
                show_until_ended({"": first}, output.stderr(), verbose=True)
        except KeyboardInterrupt:
            output.print_note(
                f"job {handle.id} goes on; stop it with   mallorn jobs cancel {handle.id}{origin.data_option}"
            )
            print_fetch(handle.status, origin.data_option)
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        handle.refresh()
        handle.raise_for_state()
        if not as_json:
            print_result(handle.status, origin.data_option)
            print_fetch(handle.status, origin.data_option)


def for_each_job(jobs: Sequence[T], act: Callable[[T], None]) -> None:
    """Act on each job. After a refusal of one of several, print it, go on, and exit with 1."""
    refusals = 0
    for job in jobs:
        try:
            act(job)
        except (Conflict, NotFound) as error:
            if len(jobs) == 1:
                raise
            output.print_error(error.message, error.hint)
            refusals += 1
    if refusals:
        output.print_note(f"{refusals} of {len(jobs)} jobs stay as they are")
        raise typer.Exit(1)


def pause(jobs: JobsArgument, as_json: output.JsonOption = False, *, place: output.Place) -> None:
    """Pause jobs: rounds in progress end, and no more are planned."""
    with find_client_and_job.open_source(*place) as origin:

        def pause_job(job: str) -> None:
            handle = origin.api.job(job)
            find_client_and_job.check_ended_job_has_service(origin, handle)
            find_client_and_job.check_active_job_has_service(origin, handle)
            handle.pause()
            _print_job(
                handle, as_json, f"paused; go on with   mallorn resume {handle.id}{origin.data_option}"
            )

        for_each_job(jobs, pause_job)


def cancel(jobs: JobsArgument, as_json: output.JsonOption = False, *, place: output.Place) -> None:
    """End jobs now; their measurements stay in the dataset."""
    with find_client_and_job.open_source(*place) as origin:

        def cancel_job(job: str) -> None:
            handle = origin.api.job(job)
            find_client_and_job.check_ended_job_has_service(origin, handle)
            handle.cancel()
            records = f"mallorn dataset records --job {handle.id}{origin.data_option}"
            _print_job(handle, as_json, f"cancelled; what it measured stays: {records}")
            if not as_json:
                print_fetch(handle.status, origin.data_option)

        for_each_job(jobs, cancel_job)


def label(
    job: output.JobArgument,
    labels: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY[=VALUE]]...", help="Labels to set.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Remove the label with this key; repeatable.")
    ] = None,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """Set or remove labels of a job, by which `mallorn jobs --label` lists it."""
    changes = dict.fromkeys(remove or ()) | parse_labels(labels or ())
    with output.client(*place) as api:
        handle = api.job(job)
        handle.change_labels(changes)
    _print_job(handle, as_json, f"labels of {handle.id}: {format_labels(handle.status.labels) or 'none'}")


def _print_job(job: Job, as_json: bool, note: str) -> None:
    """Print a job as JSON, or a note about it; JSON documents follow one another."""
    if as_json:
        output.print_json(job.body)
    else:
        output.print_note(note)


def rm(
    jobs: JobsArgument,
    yes: output.YesOption = False,
    export: Annotated[
        bool, typer.Option("--export", help="Delete only their exported files; keep the jobs.")
    ] = False,
    *,
    place: output.Place,
) -> None:
    """Delete jobs that have ended, with their logs and exported files. Their measurements are kept."""
    subject, words = ("the exported files of ", "--export ") if export else ("", "")
    note = (
        "the job stays: mallorn show" if export else "what it measured stays: mallorn dataset records --job"
    )
    with output.client(*place) as api:

        def delete(job: Job) -> None:
            job.delete_export() if export else job.delete()
            output.print_note(f"deleted {subject}{job.id}; {note} {job.id}{place.data_option}")

        handles = [api.job(job) for job in jobs]  # if one id is mistyped, none is deleted
        names = ", ".join(f"{job.id} ({job.status.name}, {job.status.state})" for job in handles)
        command = f"mallorn jobs rm {words}{' '.join(jobs)} --yes{place.data_option}"
        output.confirm_or_exit(f"Delete {subject}{names}?", command, yes)
        for_each_job(handles, delete)


def archive(
    jobs: JobsArgument,
    undo: Annotated[bool, typer.Option("--undo", help="Show them in the list of jobs again.")] = False,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """Hide jobs that have ended from the list. All their data is kept."""
    handles: list[Job] = []
    with output.client(*place) as api:

        def change(name: str) -> None:
            job = api.job(name)
            job.unarchive() if undo else job.archive()
            handles.append(job)
            if not as_json:
                note = (
                    "is in the list again: mallorn jobs" if undo else "is archived: mallorn jobs --archived"
                )
                output.print_note(f"{job.id} {note}{place.data_option}")

        try:
            for_each_job(jobs, change)
        finally:
            if as_json:
                output.print_json([job.body for job in handles])
