"""Store records restored from a log as measurements in this dataset."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy.orm import Session

from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.targets import Target
from mallorn.core.values.manifest import MeasuredOn
from mallorn.db.measurement_codec import pack_decisions, pack_times
from mallorn.db.repositories.measurements import ForeignRows
from mallorn.db.repositories.workloads import Workloads
from mallorn.workers.interfaces.model_compiler import Restored, RestoredLog
from mallorn.workers.model_import.run import new_workload
from mallorn.workers.round.store_referenced_rows import store_sketches

ID_BYTES: Final = 7  # bytes of a row id, so that it is a positive 64-bit integer


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a record: its dataset, its searcher, and the measuring context of its times."""

    dataset: str  # key of the measuring dataset, or one derived from the log
    origin: str  # origin to store for its candidate
    created_at: float
    measured_on: MeasuredOn
    row: int | None = None  # its id in that dataset; None: use a hash of the record


def derive_dataset_key(words: str) -> str:
    """Return a dataset key derived from `words`, for logs without such a key."""
    return uuid5(NAMESPACE_URL, words).hex


def store_records(
    session: Session,
    log: RestoredLog,
    provenance_of: Callable[[Restored], Provenance],
    names: Mapping[str, str] | None = None,
) -> int:
    """Store new records; return how many. `names` are the tasks' names by workload."""
    tasks = [record.task for record in log.records]
    renamed = [replace(task, name=(names or {}).get(task.key, task.op)) for task in tasks]
    workloads = [new_workload(task, log.tvm_version) for task in renamed]
    workload_ids = Workloads(session).ensure_many(list({new.key: new for new in workloads}.values()))
    sketch_ids = store_sketches(session, [record.sketch for record in log.records], imported=True)
    foreign_rows = ForeignRows(session)
    rows: list[dict[str, object]] = []
    for record in log.records:
        provenance = provenance_of(record)
        target, dataset = Target(record.target), provenance.dataset
        row = _row(record, provenance) | foreign_rows.references(target, dataset, provenance.measured_on)
        ids = {"workload_id": workload_ids[record.task.key], "sketch_id": sketch_ids[record.sketch.key]}
        rows.append(row | ids)
    return foreign_rows.add(rows)


def _row(record: Restored, provenance: Provenance) -> dict[str, object]:
    run_us = tuple(seconds * 1e6 for seconds in record.run_secs)
    content = record.task.key, record.sketch.key, list(record.decisions), record.target, run_us
    digest = int.from_bytes(hashlib.sha256(repr(content).encode()).digest()[:ID_BYTES])
    return {
        "slot": 0,
        "kind": MeasurementKind.TRIAL.kind_after_import,
        "outcome": Outcome.OK if run_us else Outcome.RUN_ERROR,
        "origin": provenance.origin,
        "source_row": digest if provenance.row is None else provenance.row,
        "created_at": provenance.created_at,
        "decisions": pack_decisions(record.decisions),
        "latency_us": median(run_us) if run_us else None,
        "run_us": pack_times(run_us) if run_us else None,
    }
