"""The command that writes a job's report."""

import time
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from cli.read_only_client import find_job, reader
from cli.terminal.option_groups import shared
from cli.terminal.output import JsonOption, NewestJobArgument, Place, print_json, stdout
from mallorn.core.errors import InvalidRequest
from mallorn.core.outcomes import Outcome


@shared
def report(
    job: NewestJobArgument = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; default: mallorn-JOB.html.")
    ] = None,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Write a job's report as one HTML file that needs no server."""
    from mallorn.report.page import FAILURES_READ, ReportData, page

    with reader(*place) as api:
        handle = find_job(api, job)
        rounds, tasks, status = list(handle.rounds(order="oldest")), handle.tasks(), handle.refresh()
        failed = [
            record
            for outcome in status.progress.failures
            for record in islice(handle.measurements(Outcome(outcome)), FAILURES_READ)
        ]
    story = ReportData.of(status, tasks, rounds, failed)
    file = out or Path(f"mallorn-{story.job.id}.html")
    try:
        file.write_text(page(story, time.time()), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot write {file}: {error.strerror}", hint="choose another --out") from None
    if as_json:
        print_json({"file": str(file)})
    else:
        stdout().print(str(file))
