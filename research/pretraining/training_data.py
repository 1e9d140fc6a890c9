"""Data for training and judging cost models: tasks with their candidates and results."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.trial import Trial

Weights = Mapping[str, int]  # how often a network calls a workload, by its key


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
    workload_id: int | None = None  # in the database that it was read from
    host: str = ""  # the class of the machines it was measured on; empty: it never reached a device
    foreign: bool = False  # another tuner's: its candidates are not of our spaces

    @property
    def candidates(self) -> list[Candidate]:
        return [trial.candidate for trial in self.trials]

    @property
    def latencies_us(self) -> list[float | None]:
        return [trial.latency_us for trial in self.trials]

    def take(self, lines: Sequence[int]) -> "TaskData":
        """Some of its rows."""
        return replace(self, trials=[self.trials[at] for at in lines])


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The tasks of a frozen set of measurements."""

    tasks: Sequence[TaskData]
    snapshot: str  # a name for the rows, the same for equal rows
    upto: int = 0  # id of the newest measurement; 0: the rows are of another dataset
    networks: Mapping[str, Weights] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=Counter)  # rows left out, by what was wrong with them

    @property
    def rows(self) -> int:
        return sum(len(task.trials) for task in self.tasks)
