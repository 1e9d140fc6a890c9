"""Find tuner logs and store their records, up to 2,000 per transaction."""

from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final

from mallorn.core.errors import NotFound
from mallorn.core.values.manifest import RECORDS, WORKLOADS
from mallorn.db.repositories.tuner_log_records import ForeignRecords
from mallorn.db.session import Database
from mallorn.research.tuner_logs import metaschedule, tenset
from mallorn.research.tuner_logs.read_json_lines import LoadedLog, Problem, Report

BATCH: Final = 2_000


@dataclass(frozen=True, slots=True)
class Log:
    """A tuner log found on disk: a file or directory, and its format."""

    format: str
    path: Path


def find_logs(path: Path) -> list[Log]:
    """Return the logs under a path: MetaSchedule databases, otherwise all JSON files
    (TenSet). Searches at any depth. Raises NotFound if there is no log."""
    if path.is_file():
        own = path.name in (RECORDS, WORKLOADS)
        return [Log(metaschedule.FORMAT, path.parent) if own else Log(tenset.FORMAT, path)]
    databases = sorted({file.parent for file in path.rglob(RECORDS)})
    if databases:
        return [Log(metaschedule.FORMAT, directory) for directory in databases]
    files = sorted(path.rglob("*.json"))
    if not files:
        raise NotFound(
            f"nothing in {path} is an export, a MetaSchedule database or a file of measure records",
            hint="mallorn dataset import --help",
        )
    return [Log(tenset.FORMAT, file) for file in files]


def load_log(database: Database, log: Log, report: Report) -> LoadedLog:
    """Store the records of a log that this dataset lacks; importing a log again adds nothing.

    Records that TVM can rebuild become measurements; others are stored as raw log records.
    """
    counts, lines = LoadedLog(), None  # None: all lines
    if log.format == metaschedule.FORMAT and find_spec("tvm") is not None:
        from mallorn.research.tuner_logs.import_metaschedule_records import load_metaschedule

        metaschedule.check_database_files(log.path)
        counts, lines = load_metaschedule(database, log.path, report)

    def count(problem: Problem) -> None:
        counts.bad += 1
        report(problem)

    if log.format == metaschedule.FORMAT:
        records = metaschedule.read_database(log.path, count, lines)
    else:
        records = tenset.read_records(log.path, count)
    while batch := list(islice(records, BATCH)):
        with database.transaction() as session:
            new_count = ForeignRecords(session).add(batch)
        counts.added += new_count
        counts.kept += new_count
        counts.known += len(batch) - new_count
    return counts
