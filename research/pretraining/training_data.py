"""Data for training and evaluating cost models: tasks with their candidates and results."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.trial import Trial

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
    """The tasks of a frozen set of measurements."""

    tasks: Sequence[TaskData]
    snapshot: str  # name of the snapshot or, for files, of their content
    upto: int = 0  # id of the newest measurement; 0 if the rows come from files
    networks: Mapping[str, Weights] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=Counter)  # rows by reason

    @property
    def rows(self) -> int:
        return sum(len(task.trials) for task in self.tasks)
