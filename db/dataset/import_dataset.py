"""Import an exported dataset. Cost models and searchers learn from its rows; none becomes a schedule.

Each batch is one transaction, and rows that exist already are skipped: an interrupted
import leaves complete batches, and the same command finishes it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

from mallorn.core.states import MeasurementKind
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import unpack_sketch
from mallorn.core.values.manifest import MeasuredOn
from mallorn.db.dataset import export_files
from mallorn.db.dataset.snapshots import Progress, ignore_progress
from mallorn.db.measurement_codec import pack_decisions, pack_times
from mallorn.db.repositories.measurements import ForeignRows
from mallorn.db.repositories.workloads import NewSketch, NewWorkload, Sketches, Workloads
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

    def batches(
        self, table: export_files.Table, size: int = export_files.BATCH_ROWS
    ) -> Iterable[list[export_files.Row]]: ...


@dataclass(slots=True)
class Imported:
    """Counts of an import: rows added, rows that were stored already, and rows skipped."""

    added: int = 0
    known: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason


def import_dataset(database: Database, directory: Path, progress: Progress = ignore_progress) -> Imported:
    """Import the rows of a Mallorn export that are not stored yet.

    The export's keys are trusted, and not computed again. Raises InvalidRequest or
    NotFound, and stores nothing, unless all files can be read.
    """
    return import_export(database, export_files.open_export(directory), progress)


def import_export(
    database: Database, export: CheckedExport, progress: Progress = ignore_progress
) -> Imported:
    """Import the rows of a checked export that are not stored yet. Faulty rows, and rows
    whose workload or sketch the export refuses, are skipped."""
    workload_ids: dict[str, int] = {}
    sketch_ids: dict[str, int] = {}
    for batch in export.batches(export_files.WORKLOAD_TABLE, TEXTS):
        workloads = [NewWorkload(**_parse_json_columns(row, "args", "features")) for row in batch]
        with database.transaction() as session:
            workload_ids |= Workloads(session).ensure_many(workloads)
    for batch in export.batches(export_files.SKETCH_TABLE, TEXTS):
        rows = [_parse_json_columns(row, "choices") for row in batch]
        sketches = [NewSketch(unpack_sketch(row), row["space"], row["tvm_version"]) for row in rows]
        with database.transaction() as session:
            sketch_ids |= Sketches(session).ensure_many(sketches, imported=True)
    result, rows_done = Imported(), 0
    for batch in export.batches(export_files.MEASUREMENT_TABLE):
        good_rows: list[export_files.Row] = []
        for row in batch:
            keys = row["workload"], row["sketch"]
            refusal = next((export.refused[key] for key in keys if key in export.refused), None)
            reason = refusal or export_files.find_row_flaw(row, export.widths)
            if reason is None:
                good_rows.append(row)
            else:
                result.skipped[reason] += 1
        with database.transaction() as session:
            foreign_rows = ForeignRows(session)
            count = foreign_rows.add(
                [
                    _to_measurement_columns(row, foreign_rows)
                    | {"workload_id": workload_ids[row["workload"]], "sketch_id": sketch_ids[row["sketch"]]}
                    for row in good_rows
                ]
            )
        result.added += count
        result.known += len(good_rows) - count
        rows_done += len(batch)
        progress(rows_done, export.rows)
    return result


def _parse_json_columns(row: export_files.Row, *json_columns: str) -> export_files.Row:
    return row | {name: json.loads(row[name]) for name in json_columns}


def _to_measurement_columns(row: export_files.Row, foreign_rows: ForeignRows) -> dict[str, object]:
    times, context = row["run_us"], {name: row[name] for name in export_files.CONTEXT}
    measured_on = None  # of a candidate that failed before it reached a device
    if None not in context.values():
        measured_on = MeasuredOn(**_parse_json_columns(context, "evaluator"))
    return {
        **{name: row[name] for name in COPIED},
        **foreign_rows.references(_parse_target(row["target"]), row["dataset"], measured_on),
        "source_row": row["row"],
        "kind": MeasurementKind(row["kind"]).kind_after_import,
        "decisions": pack_decisions(row["decisions"]),
        "run_us": pack_times(times) if times else None,
    }


_parse_target = lru_cache(parse_target)
