"""Lessons as arrays: what cost models take, and which rows belong together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodels.base import Matrix, Vector
from costmodels.metrics import Groups
from costmodels.training import bounded_sample, labels
from mallorn.core.errors import InvalidRequest
from research.lessons.lesson import Lesson


@dataclass(frozen=True, slots=True)
class Rows:
    """Measurements in their order. Rows are compared within groups: a workload on a target in a context."""

    features: Matrix
    labels: Vector
    groups: Groups
    tasks: Groups  # workloads, whatever they were measured on
    targets: Groups
    latencies_us: Vector  # infinite where nothing valid came out
    workloads: Sequence[str]  # the names of `tasks`
    target_names: Sequence[str]  # the names of `targets`

    def __len__(self) -> int:
        return len(self.labels)

    def with_labels(self, new: Vector) -> "Rows":
        """The same candidates, labelled otherwise."""
        return replace(self, labels=new)


def rows_of(lessons: Sequence[Lesson], features: Sequence[Matrix]) -> Rows:
    """The rows of lessons, one after the other. Raises InvalidRequest for none at all, or for bad times."""
    if not any(lesson.trials for lesson in lessons):
        raise InvalidRequest("there are no measurements to learn from", hint="mallorn dataset stats")
    groups = _groups(lessons)
    workloads, tasks = np.unique([lesson.workload for lesson in lessons], return_inverse=True)
    targets, places = np.unique([lesson.target for lesson in lessons], return_inverse=True)
    latencies = [latency for lesson in lessons for latency in lesson.latencies_us]
    return Rows(
        features=np.vstack(features),
        labels=_labels(lessons, groups),
        groups=groups,
        tasks=tasks[groups],
        targets=places[groups],
        latencies_us=np.array([np.inf if us is None else us for us in latencies], dtype=np.float32),
        workloads=[str(name) for name in workloads],
        target_names=[str(name) for name in targets],
    )


def thinned(lessons: Sequence[Lesson], limit: int) -> Sequence[Lesson]:
    """At most so many rows of them: a third are the best, the others an even sample."""
    groups = _groups(lessons)
    if len(groups) <= limit:
        return lessons
    # A sample takes late rows for new ones, and here they are only those of the last task.
    mixed = np.random.default_rng(0).permutation(len(groups))
    chosen = np.sort(mixed[bounded_sample(_labels(lessons, groups)[mixed], limit, seed=0)])
    starts = np.searchsorted(groups, np.arange(len(lessons)))
    kept = [chosen[groups[chosen] == number] - starts[number] for number in range(len(lessons))]
    return [lesson.take(lines.tolist()) for lesson, lines in zip(lessons, kept, strict=True) if len(lines)]


def _groups(lessons: Sequence[Lesson]) -> Groups:
    sizes = np.array([len(lesson.trials) for lesson in lessons], dtype=np.int64)
    return np.repeat(np.arange(len(lessons)), sizes)


def _labels(lessons: Sequence[Lesson], groups: Groups) -> Vector:
    trials = [trial for lesson in lessons for trial in lesson.trials]
    return labels([trial.latency_us for trial in trials], groups, [trial.outcome for trial in trials])
