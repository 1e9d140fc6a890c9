"""Writes a frozen set of measurements as Parquet, with the workloads and sketches they are made of."""

import errno
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from db.codec import unpack_decisions, unpack_times
from db.dataset.schema import MEASUREMENT_TABLE, SKETCH_TABLE, WORKLOAD_TABLE, Table
from db.dataset.snapshots import Frozen, Progress, describe, silent
from db.repositories.frozen import FrozenRow, FrozenRows
from db.repositories.sketches import Sketches, trace_of
from db.repositories.workloads import Workloads, tir_of
from db.session import Database
from db.tables import Context, SketchRow, Snapshot, Workload
from mallorn.core.errors import Conflict, InvalidRequest, StorageFull
from mallorn.core.states import MeasurementKind

GROUP_ROWS: Final = 20_000  # a row group, and with it what is in memory at a time
TEXTS: Final = 100  # programs and traces in memory at a time


@dataclass(slots=True)
class Written:
    """What an export holds."""

    measurements: int = 0
    workloads: set[int] = field(default_factory=set)
    sketches: set[int] = field(default_factory=set)


def export(
    database: Database, snapshot: Snapshot, directory: Path, progress: Progress = silent
) -> dict[str, Any]:
    """Write a snapshot's rows into a directory that appears when it is complete, and say what it holds.

    Raises Conflict for a directory that holds something, InvalidRequest for one that cannot be written.
    """
    frozen = Frozen.of(database, snapshot)
    head = describe(snapshot, frozen.source)
    with _appearing(directory) as draft:
        written = _write_measurements(database, frozen, head, draft, progress)
        _write(draft, WORKLOAD_TABLE, head, _workloads(database, sorted(written.workloads)))
        _write(draft, SKETCH_TABLE, head, _sketches(database, sorted(written.sketches)))
    return {
        "directory": str(directory),
        "snapshot": head,
        "measurements": written.measurements,
        "workloads": len(written.workloads),
        "sketches": len(written.sketches),
    }


@contextmanager
def _appearing(directory: Path) -> Iterator[Path]:
    """A directory beside the one that was asked for, which takes its place at the end."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise Conflict(f"{directory} is there already", hint=f"mallorn dataset export {directory}-2")
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
        raise InvalidRequest(
            f"cannot write {directory}: {error.strerror or error}", hint="mallorn dataset export OTHER_DIR"
        ) from None


def _write_measurements(
    database: Database, frozen: Frozen, head: dict[str, Any], draft: Path, progress: Progress
) -> Written:
    with database.session() as session:
        contexts = FrozenRows(session).contexts()
    written = Written()

    def groups() -> Iterator[list[dict[str, Any]]]:
        for page in _regrouped(frozen.pages(database, progress)):
            written.measurements += len(page)
            written.workloads.update(row.workload_id for row in page)
            written.sketches.update(row.sketch_id for row in page)
            yield [_measurement(row, frozen.source, contexts) for row in page]

    _write(draft, MEASUREMENT_TABLE, head, groups())
    return written


def _regrouped(pages: Iterable[list[FrozenRow]]) -> Iterator[list[FrozenRow]]:
    """Small pages of a narrow selection together, so that row groups are worth their heads."""
    waiting: list[FrozenRow] = []
    for page in pages:
        waiting += page
        if len(waiting) >= GROUP_ROWS:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _write(draft: Path, table: Table, head: dict[str, Any], groups: Iterable[list[dict[str, Any]]]) -> None:
    schema = table.with_head(head)
    options = {"compression": "zstd", "write_page_checksum": True}
    with pq.ParquetWriter(draft / table.file, schema, **options) as writer:
        for group in groups:
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


def _measurement(row: FrozenRow, own: str, contexts: dict[int, Context]) -> dict[str, Any]:
    values = row._asdict()
    if row.context_id is not None:
        context = contexts[row.context_id]
        values["host_class"], values["tvm_version"] = context.host_class, context.tvm_version
        values["threads"], values["evaluator"] = context.threads, _json(context.evaluator)
    values["dataset"] = row.source or own
    values["row"] = row.source_row if row.source else row.id
    values["kind"] = MeasurementKind(row.kind).measured
    values["decisions"] = unpack_decisions(row.decisions)
    values["run_us"] = unpack_times(row.run_us or b"")
    return values


def _workloads(database: Database, ids: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    for some in _chunks(ids):
        with database.session() as session:
            yield [_workload(row) for row in Workloads(session).get_many(some)]


def _workload(row: Workload) -> dict[str, Any]:
    texts = {"tir": tir_of(row), "args": _json(row.args), "features": _json(row.features)}
    return {name: getattr(row, name) for name in WORKLOAD_TABLE.schema.names} | texts


def _sketches(database: Database, ids: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    for some in _chunks(ids):
        with database.session() as session:
            yield [_sketch(row) for row in Sketches(session).rows(some)]


def _sketch(row: SketchRow) -> dict[str, Any]:
    texts = {"trace": trace_of(row), "choices": _json(row.choices)}
    return {name: getattr(row, name) for name in SKETCH_TABLE.schema.names} | texts


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[start : start + TEXTS] for start in range(0, len(ids), TEXTS))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
