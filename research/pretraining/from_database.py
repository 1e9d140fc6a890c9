"""Training data from a database: the rows of a snapshot."""

from collections.abc import Mapping
from typing import Final

from db.columnar_rows import Columns
from db.dataset.snapshots import Progress, SnapshotReader, silent, take_snapshot
from db.repositories.measuring_contexts import Contexts
from db.repositories.sketches import Sketches
from db.repositories.snapshot_rows import Selection
from db.repositories.snapshots import Snapshots
from db.repositories.workloads import Networks, Workloads
from db.session import Database
from db.tables import Snapshot
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from research.pretraining.sample_rows_per_task import MOST_ROWS, NOWHERE, TaskKey, TaskSample, WorkloadFacts
from research.pretraining.training_data import TrainingData
from workers.round.round_context import descriptors_of

SOME: Final = 500  # names in one query


def training_data_of(
    database: Database,
    snapshot: str | None,
    selection: Selection,
    progress: Progress = silent,
    limit: int = MOST_ROWS,
) -> TrainingData:
    """The rows of a snapshot; without a name, the selected rows, in a snapshot that is taken now.

    Raises NotFound for an unknown snapshot, target or operator.
    """
    frozen = _frozen(database, snapshot, selection, progress)
    gathering, ids = TaskSample(frozen.rows, limit), dict[str, int]()
    for page in SnapshotReader.of(database, frozen).pages(database, progress):
        ids |= _gather(gathering, page)
    with database.session() as session:
        workload_ids = [ids[key] for key in gathering.workloads]
        facts = {
            row.key: WorkloadFacts(row.op, descriptors_of(row), row.id)
            for start in range(0, len(workload_ids), SOME)
            for row in Workloads(session).get_many(workload_ids[start : start + SOME])
        }
        keys = sorted(gathering.sketches)
        sketches = {
            key: sketch
            for start in range(0, len(keys), SOME)
            for key, sketch in Sketches(session).by_key(keys[start : start + SOME]).items()
        }
        contexts = Contexts(session)
        hosts = {context: contexts.get(int(context)).host_class for context in gathering.contexts}
        tasks = gathering.tasks(facts, sketches, hosts)
        return TrainingData(tasks, frozen.name, frozen.upto, Networks(session).weights())


def _frozen(database: Database, name: str | None, selection: Selection, progress: Progress) -> Snapshot:
    if name is None:
        return take_snapshot(database, None, selection, progress)
    with database.session() as session:
        return Snapshots(session).get(name)


def _gather(gathering: TaskSample, page: Columns) -> Mapping[str, int]:
    """Add the trials of a page; returns the ids of their workloads by key."""
    ids: dict[str, int] = {}
    places = page.rows("workload_id", "workload", "target", "context_id", "kind")
    trials = page.rows("sketch", "decisions", "outcome", "latency_us", "bound_us")
    for place, trial in zip(places, trials, strict=True):
        number, workload, target, context_id, kind = place
        sketch, decisions, outcome, latency_us, bound_us = trial
        if MeasurementKind(kind).measured is MeasurementKind.TRIAL and bound_us is None:
            ids[workload] = number
            here = TaskKey(workload, target, NOWHERE if context_id is None else str(context_id))
            gathering.add(here, sketch, decisions, Outcome(outcome), latency_us)
    return ids
