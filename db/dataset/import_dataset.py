"""Brings an exported dataset in. Its rows teach cost models and searchers here, and are never promoted.

A batch is a transaction, and a row that is here already is passed over: an import that was interrupted leaves
whole batches, and the same command finishes it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy.orm import Session

from db.dataset.dataset_reader import BATCH_ROWS, open_parcel
from db.dataset.schema import CONTEXT, MEASUREMENT_TABLE, SKETCH_TABLE, WORKLOAD_TABLE, Row, Table, flaw
from db.dataset.snapshots import Progress, silent
from db.measurement_codec import pack_decisions, pack_times
from db.repositories.measurements import ForeignRows
from db.repositories.measuring_contexts import Contexts
from db.repositories.sketches import NewSketch, Sketches
from db.repositories.snapshots import Sources
from db.repositories.targets import Targets
from db.repositories.workloads import NewWorkload, Workloads
from db.session import Database
from mallorn.core.states import MeasurementKind
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import unpack_sketch

TEXTS: Final = 100  # programs and traces in one transaction
COPIED: Final = (
    *("slot", "outcome", "latency_us", "bound_us", "disturbed", "error", "origin"),
    *("predicted", "build_ms", "run_ms", "created_at"),
)


class Parcel(Protocol):
    """An export that can be read to its last row."""

    @property
    def rows(self) -> int: ...
    @property
    def widths(self) -> Mapping[str, int]: ...
    @property
    def refused(self) -> Mapping[str, str]:
        """Why programs and traces among the rows so far are left out, by their keys."""
        ...

    def batches(self, table: Table, size: int = BATCH_ROWS) -> Iterable[list[Row]]: ...


@dataclass(slots=True)
class Imported:
    """What became of an export's rows."""

    added: int = 0
    known: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by what was wrong with them


@dataclass(slots=True)
class Names:
    """Ids here by what the files call them: as many as there are workloads, sketches and contexts."""

    workloads: dict[str, int] = field(default_factory=dict)
    sketches: dict[str, int] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    contexts: dict[tuple[Any, ...], int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)


def import_dataset(database: Database, directory: Path, progress: Progress = silent) -> Imported:
    """Store what an export of ours holds and this dataset does not; its keys are believed.

    Raises InvalidRequest or NotFound, with nothing stored, unless every file can be read to its end.
    """
    return import_parcel(database, open_parcel(directory), progress)


def import_parcel(database: Database, parcel: Parcel, progress: Progress = silent) -> Imported:
    """Store what an export holds and this dataset does not, without rows of programs or traces it refuses."""
    names = Names()
    for batch in parcel.batches(WORKLOAD_TABLE, TEXTS):
        workloads = [NewWorkload(**_parsed(row, "args", "features")) for row in batch]
        with database.transaction() as session:
            names.workloads |= Workloads(session).ensure_many(workloads)
    for batch in parcel.batches(SKETCH_TABLE, TEXTS):
        rows = [_parsed(row, "choices") for row in batch]
        sketches = [NewSketch(unpack_sketch(row), row["space"], row["tvm_version"]) for row in rows]
        with database.transaction() as session:
            names.sketches |= Sketches(session).ensure_many(sketches, imported=True)
    result, done = Imported(), 0
    for batch in parcel.batches(MEASUREMENT_TABLE):
        good = _good(batch, parcel, result)
        with database.transaction() as session:
            added = ForeignRows(session).add([_columns(session, row, names) for row in good])
        result.added += added
        result.known += len(good) - added
        done += len(batch)
        progress(done, parcel.rows)
    return result


def _parsed(row: Row, *json_columns: str) -> Row:
    return row | {name: json.loads(row[name]) for name in json_columns}


def _good(batch: Iterable[Row], parcel: Parcel, result: Imported) -> list[Row]:
    good = []
    for row in batch:
        keys = row["workload"], row["sketch"]
        refused = next((parcel.refused[key] for key in keys if key in parcel.refused), None)
        wrong = refused or flaw(row, parcel.widths)
        if wrong is None:
            good.append(row)
        else:
            result.skipped[wrong] += 1
    return good


def _columns(session: Session, row: Row, names: Names) -> dict[str, object]:
    target, source, times = row["target"], row["dataset"], row["run_us"]
    if target not in names.targets:
        names.targets[target] = Targets(session).ensure(parse_target(target)).id
    if source not in names.sources:
        names.sources[source] = Sources(session).ensure(source)
    target_id = names.targets[target]
    return {name: row[name] for name in COPIED} | {
        "source_id": names.sources[source],
        "source_row": row["row"],
        "kind": MeasurementKind(row["kind"]).foreign,
        "workload_id": names.workloads[row["workload"]],
        "target_id": target_id,
        "context_id": _context(session, target_id, [row[name] for name in CONTEXT], names),
        "sketch_id": names.sketches[row["sketch"]],
        "decisions": pack_decisions(row["decisions"]),
        "run_us": pack_times(times) if times else None,
    }


def _context(session: Session, target_id: int, facts: Sequence[Any], names: Names) -> int | None:
    if None in facts:
        return None  # it failed before it reached a device
    key = target_id, *facts
    if key not in names.contexts:
        host_class, tvm_version, threads, evaluator = facts
        context = Contexts(session).ensure(target_id, host_class, tvm_version, threads, json.loads(evaluator))
        names.contexts[key] = context.id
    return names.contexts[key]
