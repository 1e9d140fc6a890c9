"""`mallorn dataset records`: lists measurements of the dataset."""

import itertools
from typing import Annotated, Final

import typer

from mallorn.cli.find_client_and_job import open_reader
from mallorn.cli.terminal.option_groups import expand_option_groups
from mallorn.cli.terminal.output import JsonOption, Place, print_rows
from mallorn.core.outcomes import Outcome
from mallorn.core.values.dataset import Record
from mallorn.wording.format_values import Column, first_line

ERROR_SHOWN: Final = 100
JOB_ID_CHARS: Final = 16
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


@expand_option_groups
def records(
    job: Annotated[str | None, typer.Option(help="Only measurements of this job.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only measurements of this workload key.")] = None,
    target: Annotated[str | None, typer.Option(help="Only measurements for this target.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only candidates with this outcome.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 50,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """List measurements of the dataset, newest first."""
    with open_reader(*place) as api:
        # A complete id is not looked up: a deleted job's measurements still exist.
        job = api.job(job).id if job and len(job) < JOB_ID_CHARS else job
        measurements = api.records(job, workload, target, outcome, page_size=min(limit, 500))
        rows = list(itertools.islice(measurements, limit))
    print_rows(rows, RECORD_COLUMNS, as_json, "no measurements match")
