"""Refits a family's cost model when its data has grown enough."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from costmodels.base import CostModel, Matrix
from costmodels.training import bounded_sample, informative, labels
from db.repositories.cost_models import CostModels, Head, NewCostModel
from db.repositories.jobs import Jobs
from db.repositories.sketches import Sketches
from db.repositories.tasks import Tasks
from db.repositories.trials import StoredTrial, Trials
from db.repositories.workloads import Workloads
from mallorn.core.names import resolve
from mallorn.core.options import JobOptions
from workers.round_context import descriptors_of
from workers.runtime import Runtime
from workers.search.features import describe_all
from workers.search.space import Candidate
from workers.stored import sketch_of

GROWTH: Final = 0.2
FIRST_ROWS: Final = 8
MAX_ROWS: Final = 4000


@dataclass(frozen=True, slots=True)
class _Line:
    """Which model is refit, and what its newest version has seen."""

    family: str
    target_id: int
    name: str
    head: Head | None


def train(runtime: Runtime, job_id: str, task_id: int) -> None:
    """Fit and store the next version, unless the data has hardly grown."""
    with runtime.database.session() as session:
        line = _line(session, job_id, task_id)
        if not _due(session, line):
            return
        rows = Trials(session).family(line.family, line.target_id)
        features = _features(session, rows)
    with runtime.working_on(f"training {line.name} for {line.family}"):
        new = _fit(line, rows, features)
    with runtime.database.transaction() as session:
        CostModels(session).add(new)


def _line(session: Session, job_id: str, task_id: int) -> _Line:
    job = Jobs(session).get(job_id, None)
    name = JobOptions.model_validate(job.options).cost_model
    family = Tasks(session).get(task_id).family
    return _Line(family, job.target_id, name, CostModels(session).head(family, job.target_id, name))


def _due(session: Session, line: _Line) -> bool:
    seen, rows = (line.head.seen_upto, line.head.rows) if line.head else (0, 0)
    trials = Trials(session)
    fresh = trials.family_growth(line.family, line.target_id, after=seen)
    total = trials.family_growth(line.family, line.target_id)
    # Members that came or went brought old rows along or took them away.
    return total >= FIRST_ROWS and max(fresh, abs(total - rows)) >= max(FIRST_ROWS, GROWTH * rows)


def _fit(line: _Line, rows: Sequence[StoredTrial], features: Matrix) -> NewCostModel:
    outcomes = [row.outcome for row in rows]
    groups = _groups(rows)
    label = labels([row.latency_us for row in rows], groups, outcomes)
    useful = np.flatnonzero(informative(outcomes))
    chosen = useful[bounded_sample(label[useful], MAX_ROWS, seed=len(rows))]
    model: CostModel = resolve("cost_model", line.name)()
    model.fit(features[chosen], label[chosen], groups[chosen], seed=len(rows))
    return NewCostModel(
        family=line.family,
        target_id=line.target_id,
        name=line.name,
        seen_upto=rows[-1].id,
        rows=len(rows),
        metrics={"trained_on": len(chosen), "groups": len(np.unique(groups[chosen]))},
        blob=model.save(),
        parent_id=line.head.id if line.head else None,
    )


def _groups(rows: Sequence[StoredTrial]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Latencies compare within one workload and one measuring context."""
    numbers: dict[tuple[int, int | None], int] = {}
    keys = [(row.workload_id, row.context_id) for row in rows]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _features(session: Session, rows: Sequence[StoredTrial]) -> Matrix:
    sketches = {row.key: sketch_of(row) for row in Sketches(session).get_many({row.sketch for row in rows})}
    workloads = Workloads(session).get_many({row.workload_id for row in rows})
    parts = []
    places = []
    for workload in workloads:
        lines = [at for at, row in enumerate(rows) if row.workload_id == workload.id]
        candidates = [Candidate(rows[at].sketch, rows[at].decisions) for at in lines]
        parts.append(describe_all(sketches, descriptors_of(workload), candidates))
        places += lines
    matrix = np.vstack(parts)
    in_order = np.empty_like(matrix)
    in_order[places] = matrix
    return in_order
