"""Finds logs and stores their records, some thousand in each transaction."""

from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final

from db.repositories.tuner_log_records import ForeignRecords
from db.session import Database
from mallorn.core.errors import NotFound
from mallorn.core.values.manifest import RECORDS, WORKLOADS
from research.tuner_logs import metaschedule, tenset
from research.tuner_logs.read_lines import LoadedLog, Problem, Report

BATCH: Final = 2_000


@dataclass(frozen=True, slots=True)
class Log:
    """A file or directory that one reader reads."""

    format: str
    path: Path


def find_logs(path: Path) -> list[Log]:
    """The logs under a path: MetaSchedule's databases at any depth, else files of auto_scheduler's records.

    Raises NotFound when there are none.
    """
    if path.is_file():
        own = path.name in (RECORDS, WORKLOADS)
        return [Log(metaschedule.FORMAT, path.parent) if own else Log(tenset.FORMAT, path)]
    databases = sorted({found.parent for found in path.rglob(RECORDS)})
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
    """Store what a log holds and this dataset does not. A second time adds nothing.

    What can be rebuilt becomes measurements; the rest is kept as the log has it.
    """
    loaded, left = _restored(database, log, report)

    def count(problem: Problem) -> None:
        loaded.bad += 1
        report(problem)

    if log.format == metaschedule.FORMAT:
        records = metaschedule.read_database(log.path, count, left)
    else:
        records = tenset.read_records(log.path, count)
    while batch := list(islice(records, BATCH)):
        with database.transaction() as session:
            added = ForeignRecords(session).add(batch)
        loaded.added += added
        loaded.kept += added
        loaded.known += len(batch) - added
    return loaded


def _restored(database: Database, log: Log, report: Report) -> tuple[LoadedLog, set[int] | None]:
    """What became measurements, and the lines that did not; None: all, for want of TVM or of a program."""
    if log.format != metaschedule.FORMAT or find_spec("tvm") is None:
        return LoadedLog(), None
    from research.tuner_logs.import_metaschedule_records import load_metaschedule

    metaschedule.check(log.path)
    return load_metaschedule(database, log.path, report)
