"""What there is to learn from, as values: tasks with their candidates and what became of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.trial import Trial

Weights = Mapping[str, int]  # how often a network calls a workload, by its key


@dataclass(frozen=True, slots=True)
class Lesson:
    """What was measured of one workload on one target in one measuring context, in its order."""

    workload: str  # Workload.key
    op: str
    target: str  # canonical JSON
    context: str
    descriptors: tuple[float, ...]
    sketches: Mapping[str, Sketch]
    trials: Sequence[Trial]
    workload_id: int | None = None  # where it is one of the database that is asked about it

    @property
    def candidates(self) -> list[Candidate]:
        return [trial.candidate for trial in self.trials]

    @property
    def latencies_us(self) -> list[float | None]:
        return [trial.latency_us for trial in self.trials]

    def take(self, lines: Sequence[int]) -> "Lesson":
        """Some of its rows."""
        return replace(self, trials=[self.trials[at] for at in lines])


@dataclass(frozen=True, slots=True)
class Lessons:
    """All lessons of a frozen set of measurements."""

    tasks: Sequence[Lesson]
    snapshot: str  # names the rows: the same ones alike
    upto: int = 0  # the newest measurement of this dataset among them; 0: they are from elsewhere
    networks: Mapping[str, Weights] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=Counter)  # rows left out, by what was wrong with them

    @property
    def rows(self) -> int:
        return sum(len(task.trials) for task in self.tasks)
