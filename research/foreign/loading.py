"""Finds logs and stores their records, some thousand in each transaction."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from db.repositories.foreign_records import ForeignRecords, ForeignTrial
from db.session import Database
from mallorn.core.errors import NotFound
from mallorn.core.values.manifest import RECORDS, WORKLOADS
from research.foreign import metaschedule, tenset
from research.foreign.lines import LoadedLog, Problem, Report

BATCH: Final = 2_000
READERS: Final[dict[str, Callable[[Path, Report], Iterator[ForeignTrial]]]] = {
    metaschedule.FORMAT: metaschedule.read_database,
    tenset.FORMAT: tenset.read_records,
}


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
    """Store what a log holds and this dataset does not. A second time adds nothing."""
    loaded = LoadedLog()

    def count(problem: Problem) -> None:
        loaded.bad += 1
        report(problem)

    records = READERS[log.format](log.path, count)
    while batch := list(islice(records, BATCH)):
        with database.transaction() as session:
            added = ForeignRecords(session).add(batch)
        loaded.added += added
        loaded.known += len(batch) - added
    return loaded
