"""Lessons as arrays: what cost models take, and which rows belong together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodels.base import Matrix, Vector
from costmodels.metrics import Groups
from costmodels.training import Indices, labels
from mallorn.core.errors import InvalidRequest
from workers.lessons.lesson import Lesson


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

    def take(self, lines: Indices) -> "Rows":
        """Some of the rows."""
        return replace(
            self,
            features=self.features[lines],
            labels=self.labels[lines],
            groups=self.groups[lines],
            tasks=self.tasks[lines],
            targets=self.targets[lines],
            latencies_us=self.latencies_us[lines],
        )


def rows_of(lessons: Sequence[Lesson], features: Sequence[Matrix]) -> Rows:
    """The rows of lessons, one after the other. Raises InvalidRequest for none at all, or for bad times."""
    if not lessons:
        raise InvalidRequest("there are no measurements to learn from", hint="mallorn dataset stats")
    sizes = [len(lesson.candidates) for lesson in lessons]
    groups = np.repeat(np.arange(len(lessons)), sizes)
    workloads, tasks = np.unique([lesson.workload for lesson in lessons], return_inverse=True)
    targets, places = np.unique([lesson.target for lesson in lessons], return_inverse=True)
    latencies = [latency for lesson in lessons for latency in lesson.latencies_us]
    outcomes = [outcome for lesson in lessons for outcome in lesson.outcomes]
    return Rows(
        features=np.vstack(features),
        labels=labels(latencies, groups, outcomes),
        groups=groups,
        tasks=tasks[groups],
        targets=places[groups],
        latencies_us=np.array([np.inf if us is None else us for us in latencies], dtype=np.float32),
        workloads=[str(name) for name in workloads],
        target_names=[str(name) for name in targets],
    )
