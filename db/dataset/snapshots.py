"""Freeze measurements under a name, read them again, and write them as Parquet files."""

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from mallorn.core.errors import Conflict, InvalidRequest, StorageFull
from mallorn.core.states import MeasurementKind
from mallorn.core.storable_json import compact_json
from mallorn.db.columnar_rows import Columns
from mallorn.db.dataset.export_files import CONTEXT, MEASUREMENT_TABLE, SKETCH_TABLE, WORKLOAD_TABLE, Table
from mallorn.db.measurement_codec import unpack_decisions, unpack_times
from mallorn.db.repositories.snapshots import Selection, SnapshotRows, Snapshots, Sources, name_taken_error
from mallorn.db.repositories.workloads import Sketches, Workloads, tir_of, trace_of
from mallorn.db.session import Database
from mallorn.db.tables import Context, Snapshot

PAGE_ROWS: Final = 10_000  # rows in memory at a time
NAME: Final = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
Progress = Callable[[int, int], None]  # called with the part done and the total
GROUP_ROWS: Final = 20_000  # rows of a row group, and thus in memory at a time
TEXTS: Final = 100  # programs and traces in memory at a time


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
    """Freeze the measurements stored now as snapshot `name`, by default the rows' digest.

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


@dataclass(slots=True)
class Written:
    """The number of measurements written, and the ids of their workloads and sketches."""

    measurements: int = 0
    workloads: set[int] = field(default_factory=set)
    sketches: set[int] = field(default_factory=set)


def export(
    database: Database, snapshot: Snapshot, directory: Path, progress: Progress = ignore_progress
) -> dict[str, object]:
    """Write a snapshot's rows into a directory, which appears once it is complete.

    Return a summary. Raises Conflict if `directory` is a file or is not empty,
    InvalidRequest if it cannot be written, StorageFull if the disk is full.
    """
    frozen = SnapshotReader.of(database, snapshot)
    head = describe(snapshot, frozen.source)
    summary = Written()
    with _new_directory(directory) as draft:
        with database.session() as session:
            contexts = SnapshotRows(session).contexts()

        def measurement_groups() -> Iterator[pa.Table]:
            for page in _join_small_pages(frozen.pages(database, progress)):
                summary.measurements += len(page)
                summary.workloads.update(page["workload_id"])
                summary.sketches.update(page["sketch_id"])
                yield _measurements(page, frozen.source, contexts)

        _write(draft, MEASUREMENT_TABLE, head, measurement_groups())
        for table, ids in ((WORKLOAD_TABLE, summary.workloads), (SKETCH_TABLE, summary.sketches)):
            _write(draft, table, head, _iterate_program_tables(database, table, sorted(ids)))
    return {
        "directory": str(directory),
        "snapshot": head,
        "measurements": summary.measurements,
        "workloads": len(summary.workloads),
        "sketches": len(summary.sketches),
    }


@contextmanager
def _new_directory(directory: Path) -> Iterator[Path]:
    """Yield a draft directory; rename it to `directory` unless the block fails."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise Conflict(f"{directory} exists", hint=f"mallorn dataset export {directory}-2")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".export-") as scratch:
            draft = Path(scratch, "draft")
            draft.mkdir()
            yield draft
            os.replace(draft, directory)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull() from error
        message = f"cannot write {directory}: {error.strerror or error}"
        raise InvalidRequest(message, hint="mallorn dataset export OTHER_DIR") from None


def _join_small_pages(pages: Iterable[Columns]) -> Iterator[Columns]:
    buffer: list[Columns] = []
    for page in pages:
        buffer.append(page)
        if sum(map(len, buffer)) >= GROUP_ROWS:
            yield Columns.joined(buffer)
            buffer = []
    if buffer:
        yield Columns.joined(buffer)


def _write(draft: Path, table: Table, head: Mapping[str, object], groups: Iterable[pa.Table]) -> None:
    options = {"compression": "zstd", "write_page_checksum": True}
    with pq.ParquetWriter(draft / table.file, table.with_head(head), **options) as writer:
        for group in groups:
            writer.write_table(group)


def _measurements(page: Columns, own_key: str, contexts: dict[int, Context]) -> pa.Table:
    facts = {
        number: [context.host_class, context.tvm_version, context.threads, compact_json(context.evaluator)]
        for number, context in contexts.items()
    }
    no_context = [None] * len(CONTEXT)
    row_contexts = [no_context if number is None else facts[number] for number in page["context_id"]]
    converted_columns = {
        **dict(zip(CONTEXT, zip(*row_contexts, strict=True), strict=True)),
        "dataset": [source or own_key for source in page["source"]],
        "row": [
            source_row if source else row_id
            for source, source_row, row_id in page.rows("source", "source_row", "id")
        ],
        "kind": [MeasurementKind(kind).kind_before_import for kind in page["kind"]],
        "decisions": [unpack_decisions(decisions) for decisions in page["decisions"]],
        "run_us": [unpack_times(times or b"") for times in page["run_us"]],
    }
    schema = MEASUREMENT_TABLE.schema
    stored_columns = {name: page[name] for name in schema.names if name not in converted_columns}
    return pa.Table.from_pydict(converted_columns | stored_columns, schema=schema)


def _iterate_program_tables(database: Database, table: Table, ids: Sequence[int]) -> Iterator[pa.Table]:
    for start in range(0, len(ids), TEXTS):
        part, rows = ids[start : start + TEXTS], list[dict[str, object]]()
        with database.session() as session:
            if table is WORKLOAD_TABLE:
                for workload in Workloads(session).get_many(part):
                    texts = {
                        "tir": tir_of(workload),
                        "args": compact_json(workload.args),
                        "features": compact_json(workload.features),
                    }
                    rows.append({name: getattr(workload, name) for name in table.schema.names} | texts)
            else:
                for sketch in Sketches(session).rows(part):
                    texts = {"trace": trace_of(sketch), "choices": compact_json(sketch.choices)}
                    rows.append({name: getattr(sketch, name) for name in table.schema.names} | texts)
        yield pa.Table.from_pylist(rows, schema=table.schema)
