"""Read training data from a database: the measurements that a named snapshot contains."""

from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.db.dataset.take_snapshots import Progress, SnapshotReader, ignore_progress, take_snapshot
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.sketches import Sketches
from mallorn.db.repositories.snapshots import Selection, Snapshots
from mallorn.db.repositories.workloads import Networks, Workloads
from mallorn.db.session import Database
from mallorn.research.pretraining.sample_rows_per_task import (
    MOST_ROWS,
    NOWHERE,
    TaskKey,
    TaskSample,
    WorkloadFacts,
)
from mallorn.research.pretraining.training_data import TrainingData
from mallorn.workers.round.round_context import descriptors_of

SOME: Final = 500  # keys or ids in one query


def read_measurements(
    database: Database,
    snapshot: str | None,
    selection: Selection,
    progress: Progress = ignore_progress,
    limit: int = MOST_ROWS,
) -> TrainingData:
    """Return the measurements of the named snapshot or, if None, a new one of `selection`.

    Returns a sample of about `limit` rows. Raises NotFound if the snapshot, target or
    operator is unknown.
    """
    if snapshot is None:
        frozen = take_snapshot(database, None, selection, progress)
    else:
        with database.session() as session:
            frozen = Snapshots(session).get(snapshot)
    sample, ids = TaskSample(frozen.rows, limit), dict[str, int]()
    for page in SnapshotReader.of(database, frozen).pages(database, progress):
        task_rows = page.rows("workload_id", "workload", "target", "context_id", "kind")
        trial_rows = page.rows("sketch", "decisions", "outcome", "latency_us", "bound_us")
        for task, trial in zip(task_rows, trial_rows, strict=True):
            workload_id, workload, target, context_id, kind = task
            sketch, decisions, outcome, latency_us, bound_us = trial
            # Trials with only an upper bound are left out.
            if MeasurementKind(kind).kind_before_import is MeasurementKind.TRIAL and bound_us is None:
                ids[workload] = workload_id
                task_key = TaskKey(workload, target, NOWHERE if context_id is None else str(context_id))
                sample.add(task_key, sketch, decisions, Outcome(outcome), latency_us)
    with database.session() as session:
        workload_ids = [ids[key] for key in sample.workloads]
        facts = {
            row.key: WorkloadFacts(row.op, descriptors_of(row), row.id)
            for start in range(0, len(workload_ids), SOME)
            for row in Workloads(session).get_many(workload_ids[start : start + SOME])
        }
        keys = sorted(sample.sketches)
        sketches = {
            key: sketch
            for start in range(0, len(keys), SOME)
            for key, sketch in Sketches(session).by_key(keys[start : start + SOME]).items()
        }
        contexts = Contexts(session)
        hosts = {context: contexts.get(int(context)).host_class for context in sample.contexts}
        tasks = sample.tasks(facts, sketches, hosts)
        return TrainingData(tasks, frozen.name, frozen.upto, Networks(session).call_counts_by_network())
