"""Import schedules folders: records become measurements of other hosts, never promoted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from db.dataset.snapshots import Progress, silent
from db.session import Database
from mallorn.core.targets import Target
from mallorn.core.values.manifest import RECORDS
from research.shared_schedules.folder_paths import SharedRecord, databases, read_provenance
from research.tuner_logs.read_lines import LoadedLog, Problem, Report
from research.tuner_logs.store_records import Provenance, store_records
from workers.interfaces.model_compiler import ModelCompiler, Restored, RestoredLog, reading

BATCH: Final = 64  # records in one call and one transaction


def import_schedules(
    database: Database, root: Path, report: Report, progress: Progress = silent
) -> LoadedLog:
    """Store records that this dataset lacks; importing a record again adds nothing."""
    loaded = LoadedLog()
    directories = list(databases(root))
    with reading(root) as graphs:
        for number, (target, directory) in enumerate(directories, 1):
            _merge(database, graphs, target, directory, report, loaded)
            progress(number, len(directories))
    return loaded


def _merge(
    database: Database,
    graphs: ModelCompiler,
    target: Target,
    directory: Path,
    report: Report,
    loaded: LoadedLog,
) -> None:
    provenance = read_provenance(directory)
    for start in range(0, len(provenance), BATCH):
        log = graphs.read_log(str(directory), start, min(BATCH, len(provenance) - start))
        records = [record for record in log.records if record.target == target.text]
        problems = [*_unreadable(directory, log), *_other_targets(directory, log, target)]
        for problem in problems:
            report(problem)
        loaded.bad += len(problems)
        names = {record.task.key: provenance[record.line - 1].name for record in records}
        with database.transaction() as session:
            restored = RestoredLog(records, [], log.tvm_version, log.lines)
            added = store_records(session, restored, lambda record: _provenance(provenance, record), names)
        loaded.added += added
        loaded.known += len(records) - added


def _unreadable(directory: Path, log: RestoredLog) -> Iterator[Problem]:
    for bad in log.problems:
        yield Problem(str(directory / bad.file), bad.line, bad.error)


def _other_targets(directory: Path, log: RestoredLog, target: Target) -> Iterator[Problem]:
    for record in log.records:
        if record.target != target.text:
            yield Problem(str(directory / RECORDS), record.line, f"it is for another target: {record.target}")


def _provenance(lines: list[SharedRecord], record: Restored) -> Provenance:
    line = lines[record.line - 1]
    return Provenance(line.dataset, line.origin, line.created_at, line.measured_on, line.row)
