"""The command that brings datasets and logs in."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.dataset_options import DatasetPlace, dataset
from cli.run_service_part import installed
from cli.terminal.option_groups import shared
from cli.terminal.output import JsonOption, print_json, print_note, stdout
from cli.terminal.progress_bars import bar
from mallorn.core.errors import NotFound
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import MANIFEST, read_manifest

if TYPE_CHECKING:
    from db.session import Database

MEASUREMENTS: Final = "measurements.parquet"
PROBLEMS_SHOWN: Final = 20


@dataclass(slots=True)
class ImportTally:
    """What became of everything that was named."""

    added: int = 0
    known: int = 0
    foreign: int = 0  # of those added, records of other tuners that nothing here can rebuild
    targets: list[str] = field(default_factory=list)  # of schedules that `mallorn tune` exported
    skipped: dict[str, int] = field(default_factory=dict)
    bad_lines: int = 0
    problems: list[str] = field(default_factory=list)

    def add_problem(self, problem: Any) -> None:
        """Count a bad line; the first ones are told."""
        self.bad_lines += 1
        if len(self.problems) < PROBLEMS_SHOWN:
            self.problems.append(str(problem))

    def print_problems(self) -> None:
        """Those that are told, and how many there are beside them."""
        for problem in self.problems:
            print_note(problem)
        if self.bad_lines > len(self.problems):
            print_note(f"... and {self.bad_lines - len(self.problems)} bad lines more")


@shared
def bring_in(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="What `export` or `mallorn tune` wrote, MetaSchedule databases at any depth, TenSet logs.",
        ),
    ],
    *,
    place: DatasetPlace,
    as_json: JsonOption = False,
) -> None:
    """Add measurements of other datasets, and records of other tuners. A second time adds nothing."""
    for path in paths:
        if not path.exists():
            raise NotFound(f"there is no {path}", hint="mallorn dataset import --help")
    told = ImportTally()
    with dataset(*place, create=True) as opened:
        for path in paths:
            if path.name == MEASUREMENTS or (path / MEASUREMENTS).is_file() or any(path.glob("*.parquet")):
                _bring_in_export(opened, path.parent if path.is_file() else path, told)
            else:
                _bring_in_logs(opened, path, told)
    told.print_problems()
    if as_json:
        print_json({name: getattr(told, name) for name in ImportTally.__slots__})
        return
    skipped = {**told.skipped, "bad lines": told.bad_lines}
    words = ", ".join(f"{count:,} {wrong}" for wrong, count in skipped.items() if count) or "none"
    stdout().print(f"{told.added:,} added, {told.known:,} known already; skipped: {words}")
    where = f" --data {shlex.quote(str(place.data))}" if place.data is not None else ""
    for target in told.targets:
        print_note("to measure and check these schedules here, and to have them in a directory again:")
        print_note(f"  mallorn tune MODEL --trials 0 --target {shlex.quote(target)}{where}")


def _bring_in_export(database: "Database", directory: Path, told: ImportTally) -> None:
    with installed("server,worker", "tvm"):
        from db.dataset.import_dataset import import_parcel
        from db.dataset.schema import TABLES
        from workers.interfaces.checked_dataset import CheckedDataset
        from workers.interfaces.model_compiler import reading
    files = [directory / table.file for table in TABLES]
    with reading(*files) as graphs, bar(f"reading {directory.name}") as progress:
        result = import_parcel(database, CheckedDataset(graphs, directory), progress)
    told.added += result.added
    told.known += result.known
    for wrong, count in result.skipped.items():
        told.skipped[wrong] = told.skipped.get(wrong, 0) + count


def _bring_in_logs(database: "Database", path: Path, told: ImportTally) -> None:
    from research.tuner_logs.find_and_load_logs import find_logs, load_log

    logs = find_logs(path)
    with bar(f"reading {path.name}") as progress:
        for done, log in enumerate(logs, 1):
            if (log.path / MANIFEST).is_file():
                _bring_in_schedules(database, log.path, told)
            else:
                loaded = load_log(database, log, told.add_problem)
                told.added += loaded.added
                told.foreign += loaded.kept
                told.known += loaded.known
            progress(done, len(logs))


def _bring_in_schedules(database: "Database", directory: Path, told: ImportTally) -> None:
    """What `mallorn tune` wrote: a job of the same model and target starts from it, or ends with it."""
    with installed("worker"):
        from research.tuner_logs.import_metaschedule_records import load_export
    loaded = load_export(database, directory, told.add_problem)
    told.added += loaded.added
    told.known += loaded.known
    target = parse_target(read_manifest(directory / MANIFEST).target).text
    if target not in told.targets:
        told.targets.append(target)
