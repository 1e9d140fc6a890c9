"""Commands that transfer candidates as files to devices that no worker can reach."""

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperGroup

from mallorn.cli.run_service_part import check_tables, require_packages
from mallorn.cli.terminal.option_groups import command_group
from mallorn.cli.terminal.output import JobArgument, JsonOption, print_json, print_note
from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import settings
from mallorn.stack.temporary_files import create_process_folder

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from mallorn.workers.process.worker_runtime import Runtime

UNITS: Final = {"K": 1000, "M": 1000**2, "G": 1000**3}
DataOption = Annotated[
    Path | None, typer.Option("--data", help="The data directory of `mallorn up`.  [MALLORN_DATA_DIR]")
]
app = command_group(
    "Transfer candidates to a device that no worker can reach, and their times back, as files.", TyperGroup
)


@app.command("next")
@create_process_folder("batch")
def batch_next(
    job: JobArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write.")] = Path("batch.zip"),
    limit: Annotated[str, typer.Option(help="Largest size of the file, such as 500K, 60M or 1G.")] = "60M",
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build the next rounds of a job with `--option measurer=detached` into a file.

    A program for the other machine, run_batch.py, is written next to it.
    """
    number, unit = (limit[:-1], limit[-1:]) if limit[-1:] in UNITS else (limit, "")
    if not number.isdecimal():
        raise InvalidRequest(f"{limit!r} is not a size", hint="--limit 60M")
    if not out.absolute().parent.is_dir():
        raise InvalidRequest(f"there is no folder {str(out.absolute().parent)!r}", hint="-o FILE")
    with closing(_runtime(data)) as runtime:
        from mallorn.services.control.plan_job import plan_job
        from mallorn.services.control.wait_for_device import USUAL
        from mallorn.workers.detached.pack_batch import Packing

        def plan(session: "Session", job_id: str) -> object:
            return plan_job(session, job_id, 1, (), USUAL, is_carried_in_files=True)

        batch = Packing(runtime, job, int(number) * UNITS.get(unit, 1)).pack(plan, out)
    if as_json:
        print_json({"batch": batch.id, "file": str(out), "runs": len(batch.keys)})
    else:
        print_note(f"batch {batch.id} in {out}: {len(batch.keys)} runs")
        print_note(f"there: python run_batch.py {out.name}   here: mallorn batch take {out}.results.jsonl")


@app.command()
@create_process_folder("batch")
def take(
    results: Annotated[Path, typer.Argument(help="What run_batch.py wrote.")],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import the results of a batch; results that are already known are skipped."""
    with closing(_runtime(data)) as runtime:
        from mallorn.workers.detached.batch_record import read_results
        from mallorn.workers.detached.commit_batch_results import commit_batch_results

        result = commit_batch_results(runtime, read_results(results))
    if as_json:
        print_json({"job": result.job_id, "new": result.new, "left": result.left, "refused": result.refused})
        return
    print_note(f"{result.new} results of job {result.job_id} are new, {result.left} are still to come")
    if result.refused:
        print_note(f"{result.refused} are of rounds that were cancelled meanwhile")


@app.command()
@create_process_folder("batch")
def drop(
    name: Annotated[
        str, typer.Argument(metavar="BATCH", help="The batch's id, as `mallorn batch next` prints it.")
    ],
    data: DataOption = None,
) -> None:
    """Give up a batch whose results will not come; its candidates are planned again."""
    with closing(_runtime(data)) as runtime:
        from mallorn.workers.detached.commit_batch_results import drop_batch

        dropped = drop_batch(runtime, name)
    print_note(f"batch {dropped.id} is dropped: mallorn batch next {dropped.job_id} -o FILE")


def _runtime(data: Path | None) -> "Runtime":
    if data is not None:
        os.environ["MALLORN_DATA_DIR"] = str(data.expanduser().absolute())
        settings.cache_clear()
    with require_packages("worker"):
        from mallorn.db.repositories.access_control import needs_api_keys
        from mallorn.workers.process.worker_runtime import Runtime
    config = settings()
    config.sandbox = config.sandbox_mode(needs_api_keys(config))
    check_tables(config.database_url)
    return Runtime(config)
