"""Brings folders of schedules in: their records are measurements of other hosts, and never promoted here."""

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
    """Store what a folder holds and this dataset does not. A second time, or the same from another folder,
    adds nothing."""
    loaded = LoadedLog()
    found = list(databases(root))
    with reading(root) as graphs:
        for done, (target, directory) in enumerate(found, 1):
            _merge(database, graphs, target, directory, report, loaded)
            progress(done, len(found))
    return loaded


def _merge(
    database: Database,
    graphs: ModelCompiler,
    target: Target,
    directory: Path,
    report: Report,
    loaded: LoadedLog,
) -> None:
    told = read_provenance(directory)
    for start in range(0, len(told), BATCH):
        log = graphs.read_log(str(directory), start, min(BATCH, len(told) - start))
        ours = [record for record in log.records if record.target == target.text]
        problems = [*_unread(directory, log), *_of_others(directory, log, target)]
        for problem in problems:
            report(problem)
        loaded.bad += len(problems)
        names = {record.task.key: told[record.line - 1].name for record in ours}
        with database.transaction() as session:
            kept = RestoredLog(ours, [], log.tvm_version, log.lines)
            added = store_records(session, kept, lambda record: _provenance(told, record), names)
        loaded.added += added
        loaded.known += len(ours) - added


def _unread(directory: Path, log: RestoredLog) -> Iterator[Problem]:
    for bad in log.problems:
        yield Problem(str(directory / bad.file), bad.line, bad.error)


def _of_others(directory: Path, log: RestoredLog, target: Target) -> Iterator[Problem]:
    for record in log.records:
        if record.target != target.text:
            yield Problem(str(directory / RECORDS), record.line, f"it is for another target: {record.target}")


def _provenance(told: list[SharedRecord], record: Restored) -> Provenance:
    line = told[record.line - 1]
    return Provenance(line.dataset, line.origin, line.created_at, line.measured_on, line.row)
