"""Records that were restored from a log, as rows of this dataset."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy.orm import Session

from db.measurement_codec import pack_decisions, pack_times
from db.repositories.measurements import ForeignRows
from db.repositories.measuring_contexts import Contexts
from db.repositories.snapshots import Sources
from db.repositories.targets import Targets
from db.repositories.workloads import Workloads
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.targets import Target
from mallorn.core.values.manifest import MeasuredOn
from workers.interfaces.model_compiler import Restored, RestoredLog
from workers.model_import.run import new_workload
from workers.round.store_referenced_rows import store_sketches

ID_BYTES: Final = 7  # of a row, which has to be positive in 64 bits


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a record comes from, and what its times compare with."""

    dataset: str  # the key of the dataset that measured it, or of one that a log stands for
    origin: str  # who is told to have proposed its candidate
    created_at: float
    measured_on: MeasuredOn
    row: int | None = None  # its id there; None: its own words name it


def named(words: str) -> str:
    """The key of a dataset that nobody gave one."""
    return uuid5(NAMESPACE_URL, words).hex


def store_records(
    session: Session,
    found: RestoredLog,
    told: Callable[[Restored], Provenance],
    names: Mapping[str, str] | None = None,
) -> int:
    """Store what is not here yet, and return how many those were; `names` are those of workloads."""
    tasks = [record.task for record in found.records]
    renamed = [replace(task, name=(names or {}).get(task.key, task.op)) for task in tasks]
    workloads = [new_workload(task, found.tvm_version) for task in renamed]
    workload_ids = Workloads(session).ensure_many(list({new.key: new for new in workloads}.values()))
    sketch_ids = store_sketches(session, [record.sketch for record in found.records], imported=True)
    places = _Places(session)
    rows = [
        places.of(record.target, told(record))
        | _row(record, told(record))
        | {"workload_id": workload_ids[record.task.key], "sketch_id": sketch_ids[record.sketch.key]}
        for record in found.records
    ]
    return ForeignRows(session).add(rows)


class _Places:
    """Targets, contexts and datasets, each asked for once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[str, str, str], dict[str, object]] = {}

    def of(self, target: str, told: Provenance) -> dict[str, object]:
        key = target, told.dataset, told.measured_on.model_dump_json()
        if key not in self._known:
            target_id = Targets(self._session).ensure(Target(target)).id
            context = Contexts(self._session).ensure(target_id, **told.measured_on.model_dump())
            self._known[key] = {
                "kind": MeasurementKind.TRIAL.foreign,
                "source_id": Sources(self._session).ensure(told.dataset),
                "target_id": target_id,
                "context_id": context.id,
            }
        return self._known[key]


def _row(record: Restored, told: Provenance) -> dict[str, object]:
    run_us = tuple(seconds * 1e6 for seconds in record.run_secs)
    said = record.task.key, record.sketch.key, list(record.decisions), record.target, run_us
    words = int.from_bytes(hashlib.sha256(repr(said).encode()).digest()[:ID_BYTES])
    return {
        "slot": 0,
        "outcome": Outcome.OK if run_us else Outcome.RUN_ERROR,
        "origin": told.origin,
        "source_row": words if told.row is None else told.row,
        "created_at": told.created_at,
        "decisions": pack_decisions(record.decisions),
        "latency_us": median(run_us) if run_us else None,
        "run_us": pack_times(run_us) if run_us else None,
    }
