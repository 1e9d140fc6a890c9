"""Commands that read the dataset and the fleet."""

import itertools
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.service.reading import FIRST_STEP, reader
from cli.terminal.options import ForceOption
from cli.terminal.output import (
    Address,
    JsonOption,
    Place,
    ago,
    client,
    duration,
    first_line,
    print_json,
    print_note,
    print_rows,
    stdout,
)
from cli.terminal.shared import shared
from mallorn.core.outcomes import Outcome
from mallorn.core.values.dataset import Record, VerifiedSchedule
from mallorn.core.values.fleet import WorkerStatus
from mallorn.outdir import check_model, check_target
from mallorn.wording.machines import PARTLY, sandbox_word
from mallorn.wording.units import Column

ERROR_SHOWN: Final = 100
JOB_ID_CHARS: Final = 16
SCHEDULE_COLUMNS: Final = (
    Column[VerifiedSchedule]("NAME", lambda row: row.workload_name),
    Column[VerifiedSchedule]("LATENCY (us)", lambda row: None if row.is_bound else row.latency_us),
    Column[VerifiedSchedule]("AT MOST", lambda row: row.latency_us if row.is_bound else None),
    Column[VerifiedSchedule]("LOW", lambda row: row.low_us),
    Column[VerifiedSchedule]("HIGH", lambda row: row.high_us),
    Column[VerifiedSchedule]("JOB", lambda row: row.job_id),
    Column[VerifiedSchedule]("WORKLOAD", lambda row: row.workload, cut=True),
    Column[VerifiedSchedule]("TARGET", lambda row: row.target, cut=True),
)
RECORD_COLUMNS: Final = (
    Column[Record]("ID", lambda row: row.id),
    Column[Record]("JOB", lambda row: row.job_id),
    Column[Record]("TASK", lambda row: row.workload_name),
    Column[Record]("OUTCOME", lambda row: row.outcome),
    Column[Record]("LATENCY (us)", lambda row: row.latency_us),
    Column[Record]("AT MOST", lambda row: row.bound_us),
    Column[Record]("PREDICTED", lambda row: row.predicted),
    Column[Record]("ORIGIN", lambda row: row.origin),
    Column[Record]("ERROR", lambda row: first_line(row.error or "")[:ERROR_SHOWN] or None),
)
WORKER_COLUMNS: Final = (
    Column[WorkerStatus]("WORKER", lambda row: row.id),
    Column[WorkerStatus]("STATE", lambda row: row.state),
    Column[WorkerStatus]("BUSY WITH", lambda row: row.busy_with or "nothing"),
    Column[WorkerStatus]("UP", lambda row: duration(row.uptime_sec)),
    Column[WorkerStatus]("SEEN", lambda row: ago(row.seen_sec)),
    Column[WorkerStatus]("SANDBOX", lambda row: sandbox_word(row.info.sandbox)),
)


@shared
def schedules(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Download this job's exported logs.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to put them; default: ./mallorn-JOB.")] = None,
    force: ForceOption = False,
    workload: Annotated[str | None, typer.Option(help="Only schedules of this workload key.")] = None,
    target: Annotated[str | None, typer.Option(help="Only schedules for this target.")] = None,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """List the best known schedules, or download a job's."""
    with reader(*place) as api:
        if job is None:
            rows = list(api.schedules(workload, target))
            print_rows(
                rows,
                SCHEDULE_COLUMNS,
                as_json,
                f"no schedules yet; grow some with   {FIRST_STEP}",
            )
            return
        handle = api.job(job)
        directory = out or Path(f"mallorn-{handle.id}")
        check_model(directory, lambda: handle.status.model_id, force)
        check_target(directory, handle.status.target, force)
        handle.schedules(directory)
    files = sorted(str(path) for path in directory.rglob("*") if path.is_file())
    if as_json:
        print_json({"directory": str(directory), "files": files})
        return
    stdout().print(str(directory))
    print_note(
        f"{len(files)} files; apply them with   mallorn compile MODEL --schedules {directory} -o model.so"
    )


@shared
def records(
    job: Annotated[str | None, typer.Option(help="Only measurements of this job.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only measurements of this workload key.")] = None,
    target: Annotated[str | None, typer.Option(help="Only measurements for this target.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only candidates that ended so.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """List measurements of the dataset, newest first."""
    with reader(*place) as api:
        # A whole id is taken as it is: of a deleted job the measurements are still there.
        job = api.job(job).id if job and len(job) < JOB_ID_CHARS else job
        found = api.records(job, workload, target, outcome, page_size=min(limit, 500))
        rows = list(itertools.islice(found, limit))
    print_rows(rows, RECORD_COLUMNS, as_json, "no measurements match")


@shared
def workers(*, as_json: JsonOption = False, address: Address) -> None:
    """List the workers that search, build and drive devices."""
    with client(*address) as api:
        rows = api.workers()
    print_rows(rows, WORKER_COLUMNS, as_json, "no workers; start one with   mallorn worker")
    for row in () if as_json else rows:
        note_gaps(row.id, row.info.sandbox)


def note_gaps(name: str, sandbox: str) -> None:
    """What walls are missing, where some are."""
    if sandbox_word(sandbox) == PARTLY:
        print_note(f"{name}: sandbox {sandbox}")
