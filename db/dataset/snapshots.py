"""Freezes a set of measurements under a name, and reads it again."""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from db.columnar_rows import Columns
from db.repositories.snapshot_rows import Selection, SnapshotRows
from db.repositories.snapshots import Snapshots, Sources, name_taken
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
class SnapshotReader:
    """A set of rows that stays as it is: what is selected among those up to a mark."""

    selection: Selection
    upto: int
    source: str  # SourceDataset.key of this dataset

    @classmethod
    def of(cls, database: Database, snapshot: Snapshot) -> "SnapshotReader":
        """What a stored snapshot stands for."""
        with database.transaction() as session:
            source = Sources(session).own().key
        return cls(Selection.from_dict(snapshot.filter), snapshot.upto, source)

    def pages(self, database: Database, progress: Progress = silent) -> Iterator[Columns]:
        """The rows in the order of their ids. Each page is a transaction of its own, so none lasts long."""
        after = 0
        while after < self.upto:
            with database.session() as session:
                rows = SnapshotRows(session)
                end = rows.page_end(after, self.upto, PAGE_ROWS)
                if end is None:
                    break
                found = rows.page(self.selection, after, end)
            if len(found):
                yield found
            after = end
            progress(after, self.upto)


def take_snapshot(
    database: Database, name: str | None, selection: Selection, progress: Progress = silent
) -> Snapshot:
    """Name the measurements there are now; without a name the rows name themselves, the same ones alike.

    Raises Conflict for a name that is taken, NotFound for a filter that nothing here could match.
    """
    if name is not None and not NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is no name for a snapshot", hint="use letters, digits, and . _ - between them"
        )
    with database.transaction() as session:
        if name is not None and Snapshots(session).find(name) is not None:
            raise name_taken(name)
        rows = SnapshotRows(session)
        rows.check(selection)
        frozen = SnapshotReader(selection, rows.settled_mark(), Sources(session).own().key)
    count, digest = _digest(database, frozen, progress)
    chosen = name or f"rows-{digest[:12]}"
    with database.transaction() as session:
        known = Snapshots(session).find(chosen) if name is None else None
        return known or Snapshots(session).add(chosen, frozen.upto, selection.as_dict(), count, digest)


def check_snapshot(database: Database, snapshot: Snapshot, progress: Progress = silent) -> bool:
    """Whether its rows are still those that were frozen."""
    found = _digest(database, SnapshotReader.of(database, snapshot), progress)
    return found == (snapshot.rows, snapshot.digest)


def describe(snapshot: Snapshot, source: str) -> dict[str, object]:
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


def _digest(database: Database, frozen: SnapshotReader, progress: Progress) -> tuple[int, str]:
    count, digest = 0, hashlib.sha256()
    for page in frozen.pages(database, progress):
        count += len(page)
        for line in _essences(page, frozen.source):
            digest.update(line)
    return count, digest.hexdigest()


def _essences(page: Columns, own: str) -> Iterator[bytes]:
    """What happened to which candidate, where and when; not the numbers that only this database gives."""
    identity = page.rows("source", "source_row", "id")
    facts = page.rows("workload", "target", "sketch", "outcome", "kind", "created_at")
    contents = page.rows("decisions", "run_us")
    for (source, there, here), (*of, kind, created_at), (decisions, run_us) in zip(
        identity, facts, contents, strict=True
    ):
        who = source or own, str(there if source else here)
        what = *of, MeasurementKind(kind).measured, repr(created_at)
        times = run_us or b""
        sizes = str(len(decisions)), str(len(times))
        yield "\n".join((*who, *what, *sizes)).encode() + decisions + times
