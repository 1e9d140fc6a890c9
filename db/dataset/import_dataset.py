"""Import an exported dataset. Cost models and searchers learn from its rows; none becomes a
schedule.

Each batch is one transaction, and rows that exist already are skipped: an interrupted
import leaves complete batches, and the same command finishes it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy.orm import Session

from mallorn.core.states import MeasurementKind
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import unpack_sketch
from mallorn.db.dataset.dataset_reader import BATCH_ROWS, open_export
from mallorn.db.dataset.export_schema import (
    CONTEXT,
    MEASUREMENT_TABLE,
    SKETCH_TABLE,
    WORKLOAD_TABLE,
    Row,
    Table,
    find_row_flaw,
)
from mallorn.db.dataset.take_snapshots import Progress, ignore_progress
from mallorn.db.measurement_codec import pack_decisions, pack_times
from mallorn.db.repositories.measurements import ForeignRows
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.sketches import NewSketch, Sketches
from mallorn.db.repositories.snapshots import Sources
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import NewWorkload, Workloads
from mallorn.db.session import Database

TEXTS: Final = 100  # programs and traces in one transaction
COPIED: Final = (
    *("slot", "outcome", "latency_us", "bound_us", "disturbed", "error", "origin"),
    *("predicted", "build_ms", "run_ms", "created_at"),
)


class CheckedExport(Protocol):
    """Interface of an export that was checked, as `import_export` reads it."""

    @property
    def rows(self) -> int: ...
    @property
    def widths(self) -> Mapping[str, int]: ...
    @property
    def refused(self) -> Mapping[str, str]:
        """Reasons not to import a program or trace, by key, for the batches read so far."""
        ...

    def batches(self, table: Table, size: int = BATCH_ROWS) -> Iterable[list[Row]]: ...


@dataclass(slots=True)
class Imported:
    """Counts of an import: rows added, rows that were stored already, and rows skipped."""

    added: int = 0
    known: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason


@dataclass(slots=True)
class Names:
    """Ids of an export's targets, workloads and so on in this database, by their keys."""

    workloads: dict[str, int] = field(default_factory=dict)
    sketches: dict[str, int] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    contexts: dict[tuple[Any, ...], int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)


def import_dataset(database: Database, directory: Path, progress: Progress = ignore_progress) -> Imported:
    """Import the rows of a Mallorn export that are not stored yet.

    The export's keys are trusted, and not computed again. Raises InvalidRequest or
    NotFound, and stores nothing, unless all files can be read.
    """
    return import_export(database, open_export(directory), progress)


def import_export(
    database: Database, export: CheckedExport, progress: Progress = ignore_progress
) -> Imported:
    """Import the rows of a checked export that are not stored yet.

    Faulty rows, and rows whose workload or sketch the export refuses, are skipped.
    """
    names = Names()
    for batch in export.batches(WORKLOAD_TABLE, TEXTS):
        workloads = [NewWorkload(**_parse_json_columns(row, "args", "features")) for row in batch]
        with database.transaction() as session:
            names.workloads |= Workloads(session).ensure_many(workloads)
    for batch in export.batches(SKETCH_TABLE, TEXTS):
        rows = [_parse_json_columns(row, "choices") for row in batch]
        sketches = [NewSketch(unpack_sketch(row), row["space"], row["tvm_version"]) for row in rows]
        with database.transaction() as session:
            names.sketches |= Sketches(session).ensure_many(sketches, imported=True)
    result, rows_done = Imported(), 0
    for batch in export.batches(MEASUREMENT_TABLE):
        good_rows: list[Row] = []
        for row in batch:
            keys = row["workload"], row["sketch"]
            refusal = next((export.refused[key] for key in keys if key in export.refused), None)
            reason = refusal or find_row_flaw(row, export.widths)
            if reason is None:
                good_rows.append(row)
            else:
                result.skipped[reason] += 1
        with database.transaction() as session:
            count = ForeignRows(session).add(
                [_to_measurement_columns(session, row, names) for row in good_rows]
            )
        result.added += count
        result.known += len(good_rows) - count
        rows_done += len(batch)
        progress(rows_done, export.rows)
    return result


def _parse_json_columns(row: Row, *json_columns: str) -> Row:
    return row | {name: json.loads(row[name]) for name in json_columns}


def _to_measurement_columns(session: Session, row: Row, names: Names) -> dict[str, object]:
    target, source, times = row["target"], row["dataset"], row["run_us"]
    if target not in names.targets:
        names.targets[target] = Targets(session).ensure(parse_target(target)).id
    if source not in names.sources:
        names.sources[source] = Sources(session).ensure(source)
    target_id = names.targets[target]
    context_id = None  # of a candidate that failed before it reached a device
    host_class, tvm_version, threads, evaluator = (row[name] for name in CONTEXT)
    if None not in (host_class, tvm_version, threads, evaluator):
        key = target_id, host_class, tvm_version, threads, evaluator
        if key not in names.contexts:
            context = Contexts(session).ensure(
                target_id, host_class, tvm_version, threads, json.loads(evaluator)
            )
            names.contexts[key] = context.id
        context_id = names.contexts[key]
    return {name: row[name] for name in COPIED} | {
        "source_id": names.sources[source],
        "source_row": row["row"],
        "kind": MeasurementKind(row["kind"]).kind_after_import,
        "workload_id": names.workloads[row["workload"]],
        "target_id": target_id,
        "context_id": context_id,
        "sketch_id": names.sketches[row["sketch"]],
        "decisions": pack_decisions(row["decisions"]),
        "run_us": pack_times(times) if times else None,
    }
