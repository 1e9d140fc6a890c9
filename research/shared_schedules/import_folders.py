"""Import folders of shared schedules; their records count as measurements of other hosts."""

from pathlib import Path

from mallorn.core.targets import Target
from mallorn.core.values.manifest import RECORDS
from mallorn.db.dataset.take_snapshots import Progress, ignore_progress
from mallorn.db.session import Database
from mallorn.research.shared_schedules.target_folders import BATCH, iterate_databases, read_provenance
from mallorn.research.tuner_logs.read_json_lines import LoadedLog, Problem, Report
from mallorn.research.tuner_logs.store_records import Provenance, store_records
from mallorn.workers.interfaces.model_compiler import (
    ModelCompiler,
    Restored,
    RestoredLog,
    open_sandboxed_compiler,
)


def import_schedules(
    database: Database, root: Path, report: Report, progress: Progress = ignore_progress
) -> LoadedLog:
    """Store records that this database lacks; `report` is called for each invalid one."""
    counts = LoadedLog()
    directories = list(iterate_databases(root))
    with open_sandboxed_compiler(root) as graphs:
        for number, (target, directory) in enumerate(directories, 1):
            _import_directory(database, graphs, target, directory, report, counts)
            progress(number, len(directories))
    return counts


def _import_directory(
    database: Database,
    graphs: ModelCompiler,
    target: Target,
    directory: Path,
    report: Report,
    counts: LoadedLog,
) -> None:
    provenance = read_provenance(directory)

    def provenance_of(record: Restored) -> Provenance:
        line = provenance[record.line - 1]
        return Provenance(line.dataset, line.origin, line.created_at, line.measured_on, line.row)

    for start in range(0, len(provenance), BATCH):
        log = graphs.read_metaschedule_log(str(directory), start, min(BATCH, len(provenance) - start))
        records = [record for record in log.records if record.target == target.text]
        problems = [Problem(str(directory / bad.file), bad.line, bad.error) for bad in log.problems]
        problems += [
            Problem(
                str(directory / RECORDS), record.line, f"the record is for another target: {record.target}"
            )
            for record in log.records
            if record.target != target.text
        ]
        for problem in problems:
            report(problem)
        counts.bad += len(problems)
        names = {record.task.key: provenance[record.line - 1].name for record in records}
        with database.transaction() as session:
            restored = RestoredLog(records, [], log.tvm_version, log.lines)
            new_count = store_records(session, restored, provenance_of, names)
        counts.added += new_count
        counts.known += len(records) - new_count
