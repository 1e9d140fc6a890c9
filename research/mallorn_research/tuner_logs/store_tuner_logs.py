"""Find tuner logs and store their records, up to 2,000 per transaction."""

from itertools import islice
from pathlib import Path
from typing import Final

from mallorn.core.errors import NotFound
from mallorn.core.values.manifest import MANIFEST
from mallorn.db.dataset.snapshots import Progress, ignore_progress
from mallorn.db.session import Database
from mallorn.workers.shared_schedules.import_records import find_databases
from mallorn.workers.shared_schedules.read_json_lines import LoadedLog, Report
from mallorn_research.tuner_logs import auto_scheduler, metaschedule
from mallorn_research.tuner_logs.foreign_records import ForeignRecords

BATCH: Final = 2_000


def find_logs(path: Path) -> list[Path]:
    """Return the logs under a path, at any depth: directories that are MetaSchedule databases,
    otherwise all JSON files (TenSet). Raises NotFound if there is no log."""
    logs = find_databases(path) or ([path] if path.is_file() else sorted(path.rglob("*.json")))
    if not logs:
        raise NotFound(
            f"nothing in {path} is an export, a MetaSchedule database or a file of measure records",
            hint="mallorn dataset import --help",
        )
    return logs


def load_logs(
    database: Database, path: Path, report: Report, progress: Progress = ignore_progress
) -> LoadedLog:
    """Store the records of all logs under a path; leave out directories of `mallorn tune`."""
    counts = LoadedLog()
    logs = [log for log in find_logs(path) if not (log / MANIFEST).is_file()]
    for number, log in enumerate(logs, 1):
        counts.add(load_log(database, log, report))
        progress(number, len(logs))
    return counts


def load_log(database: Database, log: Path, report: Report) -> LoadedLog:
    """Store the records of a log that this dataset lacks; importing a log again adds nothing.

    Records that TVM can rebuild become measurements; others are stored as raw log records.
    """
    if log.is_dir():
        metaschedule.check_database_files(log)
        counts, lines = metaschedule.load_metaschedule(database, log, report)
        records = metaschedule.read_database(log, report, lines)
    else:
        counts, records = LoadedLog(), auto_scheduler.read_records(log, report)
    while batch := list(islice(records, BATCH)):
        with database.transaction() as session:
            new_count = ForeignRecords(session).add(batch)
        counts.added += new_count
        counts.kept += new_count
        counts.known += len(batch) - new_count
    return counts
