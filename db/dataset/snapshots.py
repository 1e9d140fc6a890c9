"""Freezes a set of measurements under a name, and reads it again."""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from db.repositories.frozen import FrozenRow, FrozenRows
from db.repositories.selection import Selection
from db.repositories.snapshots import NewSnapshot, Snapshots, Sources, name_taken
from db.session import Database
from db.tables import Snapshot
from mallorn.core.errors import InvalidRequest
from mallorn.core.states import MeasurementKind

PAGE_ROWS: Final = 10_000  # what is in memory at a time
NAME: Final = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
Progress = Callable[[int, int], None]  # how far, of how much


def silent(_done: int, _total: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A set of rows that stays as it is: what is selected among those up to a mark."""

    selection: Selection
    upto: int
    source: str  # Source.key of this dataset

    @classmethod
    def of(cls, database: Database, snapshot: Snapshot) -> "Frozen":
        """What a stored snapshot stands for."""
        with database.transaction() as session:
            source = Sources(session).own().key
        return cls(Selection.from_dict(snapshot.filter), snapshot.upto, source)

    def pages(self, database: Database, progress: Progress = silent) -> Iterator[list[FrozenRow]]:
        """The rows in the order of their ids. Each page is a transaction of its own, so none lasts long."""
        after = 0
        while after < self.upto:
            with database.session() as session:
                rows = FrozenRows(session)
                end = rows.page_end(after, self.upto, PAGE_ROWS)
                if end is None:
                    break
                found = list(rows.page(self.selection, after, end))
            if found:
                yield found
            after = end
            progress(after, self.upto)


def take_snapshot(
    database: Database, name: str | None, selection: Selection, progress: Progress = silent
) -> Snapshot:
    """Name the measurements there are now; without a name the rows name themselves, the same ones alike.

    Raises Conflict for a name that is taken, NotFound for a filter that nothing here could match.
    """
    frozen = _freeze(database, name, selection)
    count, digest = _digest(database, frozen, progress)
    new = NewSnapshot(name or f"rows-{digest[:12]}", frozen.upto, selection.as_dict(), count, digest)
    with database.transaction() as session:
        known = Snapshots(session).find(new.name) if name is None else None
        return known or Snapshots(session).add(new)


def check_snapshot(database: Database, snapshot: Snapshot, progress: Progress = silent) -> bool:
    """Whether its rows are still those that were frozen."""
    found = _digest(database, Frozen.of(database, snapshot), progress)
    return found == (snapshot.rows, snapshot.digest)


def describe(snapshot: Snapshot, source: str) -> dict[str, Any]:
    """A snapshot as it is told to others."""
    return {
        "name": snapshot.name,
        "dataset": source,
        "upto": snapshot.upto,
        "filter": snapshot.filter,
        "rows": snapshot.rows,
        "digest": snapshot.digest,
        "created_at": snapshot.created_at,
    }


def _freeze(database: Database, name: str | None, selection: Selection) -> Frozen:
    if name is not None and not NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is no name for a snapshot", hint="use letters, digits, and . _ - between them"
        )
    with database.transaction() as session:
        if name is not None and Snapshots(session).find(name) is not None:
            raise name_taken(name)
        rows = FrozenRows(session)
        rows.check(selection)
        return Frozen(selection, rows.settled_mark(), Sources(session).own().key)


def _digest(database: Database, frozen: Frozen, progress: Progress) -> tuple[int, str]:
    count, digest = 0, hashlib.sha256()
    for page in frozen.pages(database, progress):
        count += len(page)
        for row in page:
            digest.update(_essence(row, frozen.source))
    return count, digest.hexdigest()


def _essence(row: FrozenRow, own: str) -> bytes:
    """What happened to which candidate, where and when; not the numbers that only this database gives."""
    kind = MeasurementKind(row.kind).measured
    names = row.workload, row.target, row.sketch, row.outcome, kind, repr(row.created_at)
    identity = row.source or own, str(row.source_row if row.source else row.id)
    times = row.run_us or b""
    sizes = str(len(row.decisions)), str(len(times))
    return "\n".join((*identity, *names, *sizes)).encode() + row.decisions + times
