"""Training data of cost models: tasks with results and features, arrays over all rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import resolve
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.trial import Trial
from mallorn.costmodels.base import Groups, Indices, Matrix, Vector
from mallorn.costmodels.labels import bounded_sample, labels
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import Workloads, tir_of
from mallorn.workers.round.feature_lookup import LOWERED, FeatureLookup, FeatureRows, WorkloadOnTarget

Weights = Mapping[str, int]  # calls per workload key in one network


@dataclass(frozen=True, slots=True)
class TaskData:
    """The trials of one workload on one target in one measuring context, oldest first."""

    workload: str  # Workload.key
    op: str
    target: str  # canonical JSON
    context: str
    descriptors: tuple[float, ...]
    sketches: Mapping[str, Sketch]
    trials: Sequence[Trial]
    workload_id: int | None = None  # in the database that the task was read from
    host: str = ""  # host class of the measuring machines; empty if no row reached a device
    foreign: bool = False  # measured by another tuner, so not from our search spaces

    @property
    def candidates(self) -> list[Candidate]:
        return [trial.candidate for trial in self.trials]

    @property
    def latencies_us(self) -> list[float | None]:
        return [trial.latency_us for trial in self.trials]

    def take(self, lines: Sequence[int]) -> "TaskData":
        """Return the task with only the trials at these positions."""
        return replace(self, trials=[self.trials[line] for line in lines])


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Tasks with measurements of a database snapshot or of files, to train cost models."""

    tasks: Sequence[TaskData]
    snapshot: str  # name of the snapshot or, for files, of their content
    upto: int = 0  # id of the newest measurement; 0 if the rows come from files
    networks: Mapping[str, Weights] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=Counter)  # rows by reason

    @property
    def rows(self) -> int:
        return sum(len(task.trials) for task in self.tasks)


@dataclass(frozen=True, slots=True)
class Rows:
    """Training rows of all tasks as arrays. Labels compare only within one task's group."""

    features: Matrix
    labels: Vector
    groups: Groups
    tasks: Groups  # numbers of workloads, across targets and contexts
    targets: Groups
    hosts: Groups  # numbers of host classes; -1 for rows that never reached a device
    latencies_us: Vector  # infinite for failures
    workloads: Sequence[str]  # the names of `tasks`
    target_names: Sequence[str]  # the names of `targets`
    host_names: Sequence[str]  # the names of `hosts`

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, lines: Indices) -> "Rows":
        """Return the rows with these indices; task, target and host numbers stay the same."""
        names = "features", "labels", "groups", "tasks", "targets", "hosts", "latencies_us"
        return replace(self, **{name: getattr(self, name)[lines] for name in names})


def rows_of(data: Sequence[TaskData], features: Sequence[Matrix]) -> Rows:
    """Join the tasks' rows. Raises InvalidRequest if there is none or a time is invalid."""
    if not any(task.trials for task in data):
        raise InvalidRequest("there are no measurements to learn from", hint="mallorn dataset stats")
    groups = _groups(data)
    workloads, tasks = np.unique([task.workload for task in data], return_inverse=True)
    targets, numbers = np.unique([task.target for task in data], return_inverse=True)
    host_names = sorted({task.host for task in data} - {""})
    hosts = [host_names.index(task.host) if task.host else -1 for task in data]
    latencies = [latency for task in data for latency in task.latencies_us]
    return Rows(
        features=np.vstack(features),
        labels=_labels(data, groups),
        groups=groups,
        tasks=tasks[groups],
        targets=numbers[groups],
        hosts=np.array(hosts, dtype=np.int64)[groups],
        latencies_us=np.array([np.inf if us is None else us for us in latencies], dtype=np.float32),
        workloads=[str(name) for name in workloads],
        target_names=[str(name) for name in targets],
        host_names=host_names,
    )


def thin_tasks(data: Sequence[TaskData], limit: int) -> Sequence[TaskData]:
    """Reduce tasks to `limit` rows: the best ones and an even sample of the others."""
    groups = _groups(data)
    if len(groups) <= limit:
        return data
    # Shuffle first: `bounded_sample` prefers late rows, here those of the last task.
    shuffled = np.random.default_rng(0).permutation(len(groups))
    selected = np.sort(shuffled[bounded_sample(_labels(data, groups)[shuffled], limit, seed=0)])
    starts = np.searchsorted(groups, np.arange(len(data)))
    parts = [selected[groups[selected] == number] - starts[number] for number in range(len(data))]
    return [task.take(lines.tolist()) for task, lines in zip(data, parts, strict=True) if len(lines)]


def _groups(data: Sequence[TaskData]) -> Groups:
    sizes = np.array([len(task.trials) for task in data], dtype=np.int64)
    return np.repeat(np.arange(len(data)), sizes)


def _labels(data: Sequence[TaskData], groups: Groups) -> Vector:
    trials = [trial for task in data for trial in task.trials]
    return labels([trial.latency_us for trial in trials], groups, [trial.outcome for trial in trials])


@dataclass(frozen=True, slots=True)
class Lowering:
    """Extracts features of TVM's lowered code, for tasks in the database of `viewer`."""

    viewer: FeatureLookup
    most_new: int  # most candidates per task to lower; cached ones do not count

    def compute_features(self, task: TaskData, view: str) -> FeatureRows:
        """Return a task's features. Raises InvalidRequest if the database lacks it."""
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
