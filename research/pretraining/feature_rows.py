"""Extract features of training data in the view (feature set) that a cost model reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import resolve
from mallorn.core.targets import parse_target
from mallorn.costmodels.base import Matrix
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import Workloads, tir_of
from mallorn.research.pretraining.training_data import Rows, TaskData, rows_of
from mallorn.workers.round.feature_lookup import LOWERED, FeatureLookup, FeatureRows, WorkloadOnTarget


@dataclass(frozen=True, slots=True)
class Lowering:
    """Extracts features of TVM's lowered code, for tasks in the database of `viewer`."""

    viewer: FeatureLookup
    most_new: int  # most candidates per task to lower; cached ones do not count

    def compute_features(self, task: TaskData, view: str) -> FeatureRows:
        """Return a task's features. Raises InvalidRequest if the database lacks the task."""
        if task.workload_id is None:
            raise _no_database_error(view)
        with self.viewer.database.session() as session:
            tir = tir_of(Workloads(session).get(task.workload_id))
            target = Targets(session).find(parse_target(task.target).key)
        if target is None:
            raise _no_database_error(view)
        workload = WorkloadOnTarget(
            task.workload_id, target.id, tir, task.target, task.descriptors, task.sketches
        )
        return self.viewer.look_up_features(view, workload, task.candidates, self.most_new)


def rows_for(tasks: Sequence[TaskData], view: str, lowering: Lowering | None = None) -> Rows:
    """Return features and labels, omitting candidates whose features cannot be computed.

    Raises InvalidRequest if no row is left, or if the set of features `view` needs lowered
    code but `lowering` is None.
    """
    if view in LOWERED and lowering is None:
        raise _no_database_error(view)
    usable_tasks: list[TaskData] = []
    matrices: list[Matrix] = []
    for task in tasks:
        if view in LOWERED and lowering is not None:
            features = lowering.compute_features(task, view)
            is_known = features.known
            usable_tasks.append(task if is_known.all() else task.take(np.flatnonzero(is_known).tolist()))
            matrices.append(features.rows[is_known])
        else:
            extractor = resolve("features", view)()
            usable_tasks.append(task)
            matrices.append(extractor.extract(task.sketches, task.descriptors, task.candidates))
    return rows_of(usable_tasks, matrices)


def _no_database_error(view: str) -> InvalidRequest:
    return InvalidRequest(
        f"the view {view!r} needs a compiler, and the programs of a dataset",
        hint="mallorn dataset import DIR   (then without Parquet files)",
    )
