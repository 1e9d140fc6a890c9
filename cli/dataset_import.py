"""The command that imports datasets and tuning logs."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mallorn.cli.dataset_options import DatasetPlace, dataset
from mallorn.cli.run_service_part import require_packages
from mallorn.cli.terminal.output import JsonOption, print_json, print_note, stdout
from mallorn.cli.terminal.progress_bars import bar
from mallorn.core.errors import NotFound
from mallorn.core.registry import resolve
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import MANIFEST, read_manifest

if TYPE_CHECKING:
    from mallorn.db.session import Database
    from mallorn.workers.shared_schedules.read_json_lines import LoadedLog

MEASUREMENTS: Final = "measurements.parquet"
PROBLEMS_SHOWN: Final = 20


@dataclass(slots=True)
class ImportTally:
    """Numbers of imported, known and skipped rows, and the first problems found."""

    added: int = 0
    known: int = 0
    foreign: int = 0  # added records of other tuners that cannot be rebuilt here
    targets: list[str] = field(default_factory=list)  # targets of imported `mallorn tune` exports
    skipped: dict[str, int] = field(default_factory=dict)
    bad_lines: int = 0
    problems: list[str] = field(default_factory=list)

    def add_problem(self, problem: Any) -> None:
        """Count a line that cannot be read; keep the text of the first 20."""
        self.bad_lines += 1
        if len(self.problems) < PROBLEMS_SHOWN:
            self.problems.append(str(problem))

    def add_counts(self, counts: "LoadedLog") -> None:
        """Add the counts of a log; its problems are added one by one."""
        self.added, self.known = self.added + counts.added, self.known + counts.known
        self.foreign += counts.kept

    def print_problems(self) -> None:
        """Print the first problems, and the number of further ones."""
        for problem in self.problems:
            print_note(problem)
        if self.bad_lines > len(self.problems):
            print_note(f"... and {self.bad_lines - len(self.problems)} bad lines more")


def import_datasets(
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
    """Add measurements of other datasets, and records of other tuners. A repeated import adds nothing."""
    for path in paths:
        if not path.exists():
            raise NotFound(f"there is no file or directory {path}", hint="mallorn dataset import --help")
    tally = ImportTally()
    with dataset(*place, create=True) as database:
        for path in paths:
            if path.name == MEASUREMENTS or (path / MEASUREMENTS).is_file() or any(path.glob("*.parquet")):
                directory = path.parent if path.is_file() else path
                with require_packages("server,worker", "tvm"):
                    from mallorn.db.dataset.export_files import TABLES
                    from mallorn.db.dataset.import_dataset import import_export
                    from mallorn.workers.interfaces.checked_dataset import CheckedDataset
                    from mallorn.workers.interfaces.model_compiler import open_sandboxed_compiler
                files = [directory / table.file for table in TABLES]
                with open_sandboxed_compiler(*files) as graphs, bar(f"reading {directory.name}") as progress:
                    result = import_export(database, CheckedDataset(graphs, directory), progress)
                tally.added += result.added
                tally.known += result.known
                for cause, count in result.skipped.items():
                    tally.skipped[cause] = tally.skipped.get(cause, 0) + count
            else:
                import_logs(database, path, tally)
    tally.print_problems()
    if as_json:
        return print_json({name: getattr(tally, name) for name in ImportTally.__slots__})
    counts = {**tally.skipped, "bad lines": tally.bad_lines}
    words = ", ".join(f"{count:,} {cause}" for cause, count in counts.items() if count) or "none"
    stdout().print(f"{tally.added:,} added, {tally.known:,} known already; skipped: {words}")
    data_option = f" --data {shlex.quote(str(place.data))}" if place.data is not None else ""
    for target in tally.targets:
        print_note("to measure and check these schedules here, and to have them in a directory again:")
        print_note(f"  mallorn tune MODEL --trials 0 --target {shlex.quote(target)}{data_option}")


def import_logs(database: "Database", path: Path, tally: ImportTally) -> None:
    """Import directories that `mallorn tune` wrote under a path, and logs of other tuners."""
    with require_packages("server,worker"):
        from mallorn.workers.shared_schedules.import_records import find_databases, load_tuning_export
    databases = find_databases(path)
    exports = [directory for directory in databases if (directory / MANIFEST).is_file()]
    with bar(f"reading {path.name}") as progress:
        for number, directory in enumerate(exports, 1):
            # Jobs of the same model and target can use these records.
            tally.add_counts(load_tuning_export(database, directory, tally.add_problem))
            target = parse_target(read_manifest(directory / MANIFEST).target).text
            if target not in tally.targets:
                tally.targets.append(target)
            progress(number, len(exports))
        if not exports or len(exports) < len(databases):
            load_logs = resolve("importer", "tuner-logs")
            tally.add_counts(load_logs(database, path, tally.add_problem, progress))
