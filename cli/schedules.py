"""`mallorn schedules` and `mallorn fetch`: list, find, download, compare, prune or share schedules."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from mallorn.cli.dataset_import import ImportTally
from mallorn.cli.dataset_options import DatasetPlace, dataset
from mallorn.cli.find_client_and_job import FIRST_STEP, open_reader
from mallorn.cli.print_job_result import print_library
from mallorn.cli.run_service_part import require_packages
from mallorn.cli.terminal import output
from mallorn.cli.terminal.job_options import ForceOption
from mallorn.cli.terminal.option_groups import command_group
from mallorn.cli.terminal.progress_bars import bar
from mallorn.client.out_directory import check_directory
from mallorn.core.artifact_uris import open_artifact
from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.dataset import VerifiedSchedule
from mallorn.core.values.manifest import LIBRARY
from mallorn.wording.format_values import Column

GET = "get"
SCHEDULE_COLUMNS: Final = (
    Column[VerifiedSchedule]("NAME", lambda row: row.workload_name),
    Column[VerifiedSchedule]("LATENCY (us)", lambda row: None if row.is_bound else row.latency_us),
    Column[VerifiedSchedule]("AT MOST", lambda row: row.latency_us if row.is_bound else None),
    Column[VerifiedSchedule]("TIMED", lambda row: "inside a model" if row.inside_model else "alone"),
    Column[VerifiedSchedule]("LOW", lambda row: row.low_us),
    Column[VerifiedSchedule]("HIGH", lambda row: row.high_us),
    Column[VerifiedSchedule]("JOB", lambda row: row.job_id),
    Column[VerifiedSchedule]("WORKLOAD", lambda row: row.workload, cut=True),
    Column[VerifiedSchedule]("TARGET", lambda row: row.target, cut=True),
)
_TIMES: Final = {"before_us": "BEFORE US", "after_us": "AFTER US"}
CHANGE_COLUMNS: Final = output.key_columns(change="CHANGE", name="NAME", **_TIMES, target="TARGET")
PRUNED_COLUMNS: Final = output.key_columns(name="NAME", target="TARGET", line="LINE", reason="REASON")
MOST_FILES: Final = 10_000  # of a directory of schedules at a URL
MOST_BYTES: Final = 1_000_000_000


class GetUnlessNamed(TyperGroup):
    """Treats `mallorn schedules [JOB]` as `mallorn schedules get [JOB]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_command = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if is_command else [GET, *args])


app = command_group("List the best known schedules, download a job's, or share them.", GetUnlessNamed)


@app.command(GET)
def schedules(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Download this job's exported logs.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for them; default: ./mallorn-JOB.")] = None,
    force: ForceOption = False,
    workload: Annotated[str | None, typer.Option(help="Only schedules of this workload key.")] = None,
    target: Annotated[str | None, typer.Option(help="Only schedules for this target.")] = None,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """List the best known schedules, or download a job's."""
    with open_reader(*place) as api:
        if job is None:
            rows = list(api.schedules(workload, target))
            output.print_rows(
                rows, SCHEDULE_COLUMNS, as_json, f"no schedules yet; grow some with   {FIRST_STEP}"
            )
            return
        handle = api.job(job)
        directory = out or Path(f"mallorn-{handle.id}")
        check_directory(directory, force, lambda: handle.status.model_id, Target(handle.status.target))
        handle.schedules(directory)
    files = sorted(str(path) for path in directory.rglob("*") if path.is_file())
    if as_json:
        return output.print_json({"directory": str(directory), "files": files})
    output.stdout().print(str(directory))
    output.print_note(
        f"{len(files)} files; apply them with   mallorn compile MODEL --schedules {directory} -o model.so"
    )


def fetch(
    job: output.JobArgument,
    library: Annotated[bool, typer.Option("--library", help="Only the compiled model, model.so.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Directory for the files; default: ./mallorn-JOB.")
    ] = None,
    force: ForceOption = False,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """Download a job's schedules and its compiled model."""
    with open_reader(*place) as api:
        handle = api.job(job)
        directory = folder or Path(f"mallorn-{handle.id}")
        if library:
            handle.library(directory / LIBRARY)
        else:
            check_directory(directory, force, lambda: handle.status.model_id, Target(handle.status.target))
            handle.fetch(directory)
    if as_json:
        return output.print_json({"directory": str(directory), "library": (directory / LIBRARY).is_file()})
    output.stdout().print(str(directory / LIBRARY if library else directory))
    print_library(handle.status.report, directory / LIBRARY)


@app.command("find")
def find(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Look up this job's tasks.")] = None,
    operator: Annotated[
        str | None, typer.Option("--op", help="Operator, such as conv2d (see `mallorn dataset stats`).")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="1x64x56x56", help="Shape of an argument; repeatable."),
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Data type of an argument, such as float32.")] = None,
    target: Annotated[str | None, typer.Option(help="Only schedules for this target.")] = None,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """Find schedules by operator, shape, type and target; if none fits, say what the nearest differ in."""
    with open_reader(*place) as api:
        if job is None:
            lookups = {"": api.find_schedules(operator, shape or [], dtype, target)}
        else:
            handle = api.job(job)
            target = target or handle.status.target
            lookups = {
                task.name: api.find_schedules(target=target, workload=task.workload)
                for task in handle.tasks()
            }
    if as_json:
        return output.print_json(lookups if job else lookups[""])
    for name, lookup in lookups.items():
        if job:
            output.stdout().print(f"{name}: {'found' if lookup.found else 'not found'}")
        else:
            output.print_rows(lookup.found, SCHEDULE_COLUMNS, as_json, "no schedule fits")
        for workload in lookup.nearest:
            fields = "; ".join(f"{field}: {text}" for field, text in workload.differences.items())
            facts = f"{workload.workload_name}, {workload.latency_us:.1f} us"
            output.stdout().print(f"  nearest: {facts}; {fields or 'not verified'}")


@app.command("diff")
def diff(
    left: Annotated[str, typer.Argument(metavar="A", help="A directory of schedules, or its URL.")],
    right: Annotated[str, typer.Argument(metavar="B", help="Another, to compare with it.")],
    as_json: output.JsonOption = False,
) -> None:
    """Compare two directories of schedules: workloads that were added, removed or changed."""
    with require_packages("worker"):
        from mallorn.workers.shared_schedules.target_folders import compare_directories
    with open_directory(left) as old, open_directory(right) as new:
        changes = compare_directories(old, new)
    output.print_rows(changes, CHANGE_COLUMNS, as_json, "the schedules are the same")


@app.command("prune")
def prune(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A directory of schedules, or its URL.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    as_json: output.JsonOption = False,
) -> None:
    """Remove records that no longer rebuild or are slower than another."""
    with require_packages("worker", "tvm"):
        from mallorn.workers.shared_schedules.target_folders import find_prunable, remove_records
    with open_directory(directory, writes=not dry_run) as folder:
        pruned = find_prunable(folder)
        if not dry_run:
            remove_records([record for record, _ in pruned])
    rows = [
        {"name": record.name, "target": record.target, "line": record.line, "reason": reason}
        for record, reason in pruned
    ]
    output.print_rows(rows, PRUNED_COLUMNS, as_json, "there is nothing to remove")


@contextmanager
def open_directory(place: str, *, writes: bool = False, create: bool = False) -> Iterator[Path]:
    """Yield a path, or a temporary copy of the directory at a URL such as s3://BUCKET/DIR.

    With `writes`, the directory there is made the same as the copy when the block ends.
    Raises NotFound if there is no directory, unless `create`; StoreAway if the store fails.
    """
    if "://" not in place:
        if not create and not Path(place).is_dir():
            raise NotFound(f"there is no folder {place}", hint="mallorn schedules export DIR   (makes one)")
        yield Path(place)
        return
    with require_packages("server,worker"), TemporaryDirectory(prefix="mallorn-schedules-") as scratch:
        folder = Path(scratch).resolve()
        with open_artifact(place) as (fs, root):
            names = [name[len(root) :].lstrip("/") for name in fs.find(root)] if fs.exists(root) else []
            if (
                len(names) > MOST_FILES
                or sum(map(fs.size, (f"{root}/{name}" for name in names))) > MOST_BYTES
            ):
                message = f"{place} holds more than {MOST_FILES:,} files or {MOST_BYTES / 1e9:.0f} GB"
                raise InvalidRequest(message, hint="name the directory of one target")
            for name in names:
                path = folder / name
                if not path.resolve().is_relative_to(folder):
                    raise InvalidRequest(f"{place} names a file outside its directory: {name!r}")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(fs.cat_file(f"{root}/{name}"))
        if not names and not create:
            raise NotFound(f"there are no files at {place}", hint=f"mallorn schedules export {place}")
        yield folder
        if writes:
            with open_artifact(place) as (fs, root):
                files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
                for name in files:
                    fs.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
                    fs.pipe_file(f"{root}/{name}", (folder / name).read_bytes())
                for name in set(names) - files:
                    fs.rm_file(f"{root}/{name}")


@app.command("export")
def export(
    directory: Annotated[
        str, typer.Argument(metavar="DIR|URL", help="The folder to create or to update, or its URL.")
    ],
    target: Annotated[str | None, typer.Option(help="Only records of this target.")] = None,
    *,
    place: DatasetPlace,
    as_json: output.JsonOption = False,
) -> None:
    """Write the best known record of every workload into a folder that git and stock TVM can read."""
    parsed_target = None if target is None else parse_target(target)
    with require_packages("worker"):
        from mallorn.workers.shared_schedules.target_folders import export_schedules
    with (
        dataset(*place) as database,
        open_directory(directory, writes=True, create=True) as folder,
        bar("writing") as progress,
    ):
        exports = list(export_schedules(database, folder, parsed_target, progress))
    if not exports:
        of_target = f" of {parsed_target}" if parsed_target else ""
        message = f"the dataset has no measurements{of_target} yet"
        raise NotFound(message, hint="mallorn tune MODEL   (or: mallorn dataset stats)")
    rows = [
        {
            "directory": f"{directory.rstrip('/')}/{export.directory.name}",
            "records": export.records,
            "left_out": export.left_out,
        }
        for export in exports
    ]
    if as_json:
        return output.print_json(rows)
    for row in rows:
        omitted = f", {row['left_out']} left out: they do not rebuild here" if row["left_out"] else ""
        output.stdout().print(f"{row['directory']}: {row['records']} records{omitted}")
    output.print_note(f"bring them in elsewhere with   mallorn schedules import {directory}")


@app.command("import")
def import_schedule_folders(
    directories: Annotated[
        list[str], typer.Argument(metavar="DIR|URL...", help="What `export` wrote, or its URL.")
    ],
    *,
    place: DatasetPlace,
    as_json: output.JsonOption = False,
) -> None:
    """Add the records of such folders to the dataset. A repeated import adds nothing."""
    tally = ImportTally()
    with require_packages("worker"):
        from mallorn.workers.shared_schedules.import_records import import_schedules
    with dataset(*place, create=True) as database:
        for directory in directories:
            with open_directory(directory) as folder, bar(f"reading {directory}") as progress:
                counts = import_schedules(database, folder, tally.add_problem, progress)
            tally.add_counts(counts)
    tally.print_problems()
    if as_json:
        figures = {"added": tally.added, "known": tally.known, "bad": tally.bad_lines}
        output.print_json({**figures, "problems": tally.problems})
    else:
        output.stdout().print(
            f"{tally.added:,} added, {tally.known:,} known already, {tally.bad_lines:,} bad"
        )
