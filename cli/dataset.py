"""`mallorn dataset`: statistics, snapshots, export and import of measurements."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final

import typer

from mallorn.cli.dataset_import import import_datasets
from mallorn.cli.dataset_options import DatasetPlace, RowFilter, SnapshotOption, dataset, to_selection
from mallorn.cli.find_client_and_job import open_reader
from mallorn.cli.run_service_part import require_packages
from mallorn.cli.terminal import output
from mallorn.cli.terminal.lazy_commands import LazyGroup
from mallorn.cli.terminal.option_groups import command_group
from mallorn.cli.terminal.progress_bars import bar
from mallorn.core.errors import Conflict, InvalidRequest
from mallorn.core.outcomes import Outcome
from mallorn.core.values.base import Value
from mallorn.core.values.dataset import DatasetStats, DayCount, NamedCount, Record
from mallorn.wording.format_values import Column, first_line, format_moment


class TakenSnapshot(Value):
    """A snapshot: an immutable, named set of measurements."""

    name: str
    rows: int
    filter: Mapping[str, object]
    digest: str
    upto: int
    created_at: float

    @property
    def selection(self) -> str:
        """The snapshot's filter in words."""
        from mallorn.db.repositories.snapshots import Selection

        return str(Selection.from_dict(self.filter))


COLUMNS: Final = (
    Column[TakenSnapshot]("SNAPSHOT", lambda row: row.name),
    Column[TakenSnapshot]("ROWS", lambda row: row.rows),
    Column[TakenSnapshot]("OF", lambda row: row.selection),
    Column[TakenSnapshot]("TAKEN", lambda row: format_moment(row.created_at)),
    Column[TakenSnapshot]("DIGEST", lambda row: row.digest[:12]),
)
NO_SNAPSHOTS: Final = "no snapshots yet; take one with   mallorn dataset snapshot NAME"
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


class DatasetGroup(LazyGroup):
    prefix: ClassVar = "dataset."


app = command_group("Show the dataset and its records, freeze it, export it, import others.", DatasetGroup)


@app.command()
def stats(place: DatasetPlace, as_json: output.JsonOption = False, *, address: output.Address) -> None:
    """Count measurements by target, operator, model and outcome, and day by day.

    With --url it counts your own jobs' measurements, else everything in the database.
    """
    if address.url and place == DatasetPlace():
        with output.client(*address) as api:
            print_statistics(api.dataset_stats(), as_json)
        return
    with dataset(*place) as database:
        from mallorn.db.repositories.dataset_statistics import Statistics

        with database.session() as session:
            counts = Statistics(session).of(None)
    print_statistics(counts, as_json)


@app.command()
def snapshot(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Its name; default: list all snapshots.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the rows of a snapshot instead.")] = False,
    *,
    rows: RowFilter,
    place: DatasetPlace,
    as_json: output.JsonOption = False,
) -> None:
    """Freeze the current measurements under a name, or list the snapshots."""
    with dataset(*place) as database:
        from mallorn.db.dataset.snapshots import check_snapshot, take_snapshot
        from mallorn.db.repositories.snapshots import Snapshots

        if name is None:
            with database.session() as session:
                snapshots = [TakenSnapshot.from_row(row) for row in Snapshots(session).list()]
            output.print_rows(snapshots, COLUMNS, as_json, NO_SNAPSHOTS)
            return
        with bar("counting") as progress:
            if check:
                with database.session() as session:
                    snapshot_row = Snapshots(session).get(name)
                if not check_snapshot(database, snapshot_row, progress):
                    message = f"rows of snapshot {name} changed after it was taken"
                    raise Conflict(message, hint="restore a backup")
            else:
                snapshot_row = take_snapshot(database, name, to_selection(database, rows), progress)
    output.print_rows([TakenSnapshot.from_row(snapshot_row)], COLUMNS, as_json, "")


@app.command()
def export(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="A directory that does not exist yet.")],
    snapshot_name: SnapshotOption = None,
    *,
    rows: RowFilter,
    place: DatasetPlace,
    as_json: output.JsonOption = False,
) -> None:
    """Write measurements, with their workloads and sketches, as Parquet files."""
    if snapshot_name is not None and rows != RowFilter():
        message = "a snapshot has a filter already; other filters cannot be added"
        raise InvalidRequest(message, hint=f"mallorn dataset export {out} --snapshot {snapshot_name}")
    with dataset(*place) as database:
        with require_packages("server"):
            from mallorn.db.dataset.snapshots import export as write
        from mallorn.db.dataset.snapshots import take_snapshot
        from mallorn.db.repositories.snapshots import Snapshots

        if snapshot_name is not None:
            with database.session() as session:
                snapshot_row = Snapshots(session).get(snapshot_name)
        else:
            with bar("counting") as progress:
                snapshot_row = take_snapshot(database, None, to_selection(database, rows), progress)
        with bar("writing") as progress:
            report = write(database, snapshot_row, out, progress)
    if as_json:
        return output.print_json(report)
    output.stdout().print(report["directory"])
    counts = ", ".join(f"{report[kind]:,} {kind}" for kind in ("measurements", "workloads", "sketches"))
    output.print_note(
        f"{counts}; snapshot {snapshot_row.name}. Bring them in elsewhere with   mallorn dataset import {out}"
    )


app.command("import")(import_datasets)


DAY_COLUMNS: Final = (
    Column[DayCount]("DAY", lambda day: day.day.isoformat()),
    Column[DayCount]("MEASUREMENTS", lambda day: day.count),
    Column[DayCount]("IN ALL", lambda day: day.total),
)
SHOWN: Final = 20  # rows of a table; --json prints all


def print_statistics(statistics: DatasetStats, as_json: bool) -> None:
    """Print the counts as one JSON document, or as one table per kind of count."""
    if as_json:
        return output.print_json(statistics)
    if not statistics.measurements and not statistics.foreign_records:
        output.print_note("no measurements yet; make some with   mallorn tune model.onnx")
        return
    console = output.stdout()
    imported_count = statistics.imported_measurements
    imported = f", {imported_count:,} of them imported" if imported_count else ""
    console.print(f"{statistics.measurements:,} measurements of {statistics.workloads:,} workloads{imported}")
    kinds = {
        "TARGET": statistics.targets,
        "OPERATOR": statistics.operators,
        "MODEL": statistics.models,
        "OUTCOME": statistics.outcomes,
        "FROM LOGS OF": statistics.foreign_records,
    }
    for heading, counts in kinds.items():
        if counts:
            rows = counts[:SHOWN]
            if other_counts := counts[SHOWN:]:
                other_count = sum(count.count for count in other_counts)
                rows.append(NamedCount(name=f"({len(other_counts)} others)", count=other_count))
            columns = (
                Column[NamedCount](heading, lambda count: count.name),
                Column[NamedCount]("MEASUREMENTS", lambda count: count.count),
            )
            console.print()
            console.print(output.table(rows, columns))
    if statistics.days:
        console.print()
        console.print(output.table(statistics.days[-SHOWN:], DAY_COLUMNS))


@app.command()
def records(
    job: Annotated[str | None, typer.Option(help="Only measurements of this job.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only measurements of this workload key.")] = None,
    target: Annotated[str | None, typer.Option(help="Only measurements for this target.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only candidates with this outcome.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 50,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """List measurements of the dataset, newest first."""
    with open_reader(*place) as api:
        # A complete id is not looked up: a deleted job's measurements still exist.
        job = api.job(job).id if job and len(job) < JOB_ID_CHARS else job
        measurements = api.records(job, workload, target, outcome, page_size=min(limit, 500))
        rows = list(itertools.islice(measurements, limit))
    output.print_rows(rows, RECORD_COLUMNS, as_json, "no measurements match")
