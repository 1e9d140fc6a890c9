"""Records that were restored from a log, as rows of this dataset."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy.orm import Session

from db.codec import pack_decisions, pack_times
from db.repositories.contexts import Contexts
from db.repositories.foreign_rows import ForeignRows
from db.repositories.snapshots import Sources
from db.repositories.targets import Targets
from db.repositories.workloads import Workloads
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.targets import Target
from mallorn.core.values.manifest import MeasuredOn
from workers.faces.graphs import Restored, RestoredLog
from workers.importing.run import new_workload
from workers.round.rows import store_sketches

ID_BYTES: Final = 7  # of a row, which has to be positive in 64 bits


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a log comes from, and what its times compare with."""

    source: str  # names the dataset that it stands for
    origin: str  # who is told to have proposed its candidates
    created_at: float
    measured_on: MeasuredOn


def store_records(
    session: Session, found: RestoredLog, log: Provenance, names: Mapping[str, str] | None = None
) -> int:
    """Store what is not here yet, and return how many those were; `names` are those of workloads."""
    tasks = [record.task for record in found.records]
    named = [replace(task, name=(names or {}).get(task.key, task.op)) for task in tasks]
    workloads = [new_workload(task, found.tvm_version) for task in named]
    workload_ids = Workloads(session).ensure_many(list({new.key: new for new in workloads}.values()))
    sketch_ids = store_sketches(session, [record.sketch for record in found.records])
    places = {text: _place(session, text, log) for text in {record.target for record in found.records}}
    rows = [
        places[record.target]
        | _row(record, log.origin)
        | {"workload_id": workload_ids[record.task.key], "sketch_id": sketch_ids[record.sketch.key]}
        for record in found.records
    ]
    return ForeignRows(session).add(rows)


def _place(session: Session, target: str, log: Provenance) -> dict[str, Any]:
    target_id = Targets(session).ensure(Target(target)).id
    return {
        "kind": MeasurementKind.TRIAL.foreign,
        "source_id": Sources(session).ensure(uuid5(NAMESPACE_URL, log.source).hex),
        "target_id": target_id,
        "context_id": Contexts(session).ensure(target_id, **log.measured_on.model_dump()).id,
        "created_at": log.created_at,
    }


def _row(record: Restored, origin: str) -> dict[str, Any]:
    run_us = tuple(seconds * 1e6 for seconds in record.run_secs)
    said = record.task.key, record.sketch.key, list(record.decisions), record.target, run_us
    return {
        "slot": 0,
        "outcome": Outcome.OK if run_us else Outcome.RUN_ERROR,
        "origin": origin,
        "source_row": int.from_bytes(hashlib.sha256(repr(said).encode()).digest()[:ID_BYTES]),
        "decisions": pack_decisions(record.decisions),
        "latency_us": median(run_us) if run_us else None,
        "run_us": pack_times(run_us) if run_us else None,
    }
