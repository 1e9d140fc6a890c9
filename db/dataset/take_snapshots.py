"""Freeze a set of measurements under a name, and read it again."""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mallorn.core.errors import InvalidRequest
from mallorn.core.states import MeasurementKind
from mallorn.db.columnar_rows import Columns
from mallorn.db.repositories.snapshots import Selection, SnapshotRows, Snapshots, Sources, name_taken_error
from mallorn.db.session import Database
from mallorn.db.tables import Snapshot

PAGE_ROWS: Final = 10_000  # rows in memory at a time
NAME: Final = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
Progress = Callable[[int, int], None]  # called with the part done and the total


def ignore_progress(_rows_done: int, _total: int) -> None:
    """Do nothing: the default for callers that show no progress."""


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    """Reads a fixed set of rows: those with ids up to `upto` that `selection` matches."""

    selection: Selection
    upto: int
    source: str  # SourceDataset.key of this dataset

    @classmethod
    def of(cls, database: Database, snapshot: Snapshot) -> "SnapshotReader":
        with database.transaction() as session:
            source = Sources(session).own().key
        return cls(Selection.from_dict(snapshot.filter), snapshot.upto, source)

    def pages(self, database: Database, progress: Progress = ignore_progress) -> Iterator[Columns]:
        """Yield pages of rows, ordered by id, each read in a short transaction."""
        last_id = 0
        while last_id < self.upto:
            with database.session() as session:
                rows = SnapshotRows(session)
                end = rows.page_end(last_id, self.upto, PAGE_ROWS)
                if end is None:
                    break
                page = rows.page(self.selection, last_id, end)
            if len(page):
                yield page
            last_id = end
            progress(last_id, self.upto)


def take_snapshot(
    database: Database, name: str | None, selection: Selection, progress: Progress = ignore_progress
) -> Snapshot:
    """Freeze the measurements stored now as snapshot `name`, by default named after its
    rows' digest.

    Raises InvalidRequest for an invalid name, Conflict for one that is taken, NotFound if
    the selection names something that this dataset does not hold.
    """
    if name is not None and not NAME.fullmatch(name):
        message = f"{name!r} cannot be the name of a snapshot"
        raise InvalidRequest(message, hint="use letters, digits, and . _ - between them")
    with database.transaction() as session:
        if name is not None and Snapshots(session).find(name) is not None:
            raise name_taken_error(name)
        rows = SnapshotRows(session)
        rows.check(selection)
        frozen = SnapshotReader(selection, rows.find_newest_settled_id(), Sources(session).own().key)
    count, digest = _digest(database, frozen, progress)
    label = name or f"rows-{digest[:12]}"
    with database.transaction() as session:
        existing = Snapshots(session).find(label) if name is None else None
        return existing or Snapshots(session).add(label, frozen.upto, selection.as_dict(), count, digest)


def check_snapshot(database: Database, snapshot: Snapshot, progress: Progress = ignore_progress) -> bool:
    """Return whether the snapshot's rows are still those that were frozen."""
    current = _digest(database, SnapshotReader.of(database, snapshot), progress)
    return current == (snapshot.rows, snapshot.digest)


def describe(snapshot: Snapshot, source: str) -> dict[str, object]:
    """Return a snapshot's fields and the key of its dataset, for files and messages."""
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
    """Return the number of rows, and a digest of their candidates, outcomes and origins.
    Ids that only mean something in this database are left out."""
    count, digest = 0, hashlib.sha256()
    for page in frozen.pages(database, progress):
        count += len(page)
        origins = page.rows("source", "source_row", "id")
        facts = page.rows("workload", "target", "sketch", "outcome", "kind", "created_at")
        contents = page.rows("decisions", "run_us")
        for (source, source_row, row_id), (*keys, kind, created_at), (decisions, run_us) in zip(
            origins, facts, contents, strict=True
        ):
            origin = source or frozen.source, str(source_row if source else row_id)
            texts = *keys, MeasurementKind(kind).kind_before_import, repr(created_at)
            times = run_us or b""
            sizes = str(len(decisions)), str(len(times))
            digest.update("\n".join((*origin, *texts, *sizes)).encode() + decisions + times)
    return count, digest.hexdigest()
