"""What the simulator replays: the candidates of each task in the order that its searcher proposed them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

from benchmarks.sim.curve_file import RecordedRound

TAIL: Final = 16


@dataclass(frozen=True, slots=True)
class Cut:
    """What one round brings."""

    candidates_us: tuple[float | None, ...]
    seconds: float
    dry: bool  # the searcher found fewer candidates than it was asked for

    @property
    def best_us(self) -> float | None:
        return min((latency for latency in self.candidates_us if latency is not None), default=None)


@dataclass(frozen=True)
class TaskCurve:
    """One task's whole sequence of candidates; a round of any size is a cut of it.

    Past its end a curve repeats its last `TAIL` candidates: a round there costs and shows what the last
    recorded one did and never brings a gain, so the edge of a recording looks like a task that is done, not
    like one that died. Only a task whose searcher ran dry while it was recorded runs dry here, too.
    """

    name: str
    weight: int
    flops: float
    op: str
    structure: str
    candidates_us: tuple[float | None, ...]  # None: it failed
    seconds: tuple[float, ...]  # that each candidate took
    runs_dry: bool = False

    def cut(self, start: int, size: int) -> "Cut":
        """The round of `size` candidates that follows the first `start`."""
        end = min(start + size, len(self.candidates_us)) if self.runs_dry else start + size
        places = [self._place(at) for at in range(start, end)]
        latencies = tuple(self.candidates_us[at] for at in places)
        return Cut(latencies, sum(self.seconds[at] for at in places), dry=end - start < size)

    def _place(self, at: int) -> int:
        length = len(self.candidates_us)
        if at < length:
            return at
        tail = min(TAIL, length)
        return length - tail + (at - length) % tail

    @cached_property
    def final_us(self) -> float | None:
        """The best of the whole sequence; None where every candidate failed."""
        return min(self.valid_us, default=None)

    @cached_property
    def valid_us(self) -> tuple[float, ...]:
        return tuple(latency for latency in self.candidates_us if latency is not None)

    @cached_property
    def untuned_us(self) -> float:
        """What the task counts for until it is measured: its first valid candidate, tuned by nobody."""
        return self.valid_us[0] if self.valid_us else 0.0


@dataclass(frozen=True)
class ModelCurves:
    """One recording of one model, or one drawn model."""

    name: str
    tasks: tuple[TaskCurve, ...]

    @cached_property
    def trials(self) -> int:
        """How many candidates the curves hold: the budget of a simulated job."""
        return sum(len(task.candidates_us) for task in self.tasks)

    @cached_property
    def final_us(self) -> float:
        """The weighted latency at the end of all curves; tasks that never worked count nothing."""
        return sum(task.weight * (task.final_us or 0.0) for task in self.tasks)


def recordings(rounds: Iterable[RecordedRound]) -> dict[str, list[ModelCurves]]:
    """The recordings of each model, ordered by seed."""
    cells = defaultdict[tuple[str, int], list[RecordedRound]](list)
    for row in rounds:
        cells[row.model, row.seed].append(row)
    found = defaultdict[str, list[ModelCurves]](list)
    for (model, _), rows in sorted(cells.items(), key=lambda item: item[0]):
        found[model].append(_model(model, rows))
    return dict(found)


def _model(name: str, rows: Iterable[RecordedRound]) -> ModelCurves:
    ordered = sorted(rows, key=lambda row: (row.task, row.round))
    return ModelCurves(
        name, tuple(_task(list(same)) for _, same in groupby(ordered, key=lambda row: row.task))
    )


def _task(rounds: Sequence[RecordedRound]) -> TaskCurve:
    first, last = rounds[0], rounds[-1]
    return TaskCurve(
        name=first.name,
        weight=first.weight,
        flops=first.flops,
        op=first.op,
        structure=first.structure,
        candidates_us=tuple(latency for row in rounds for latency in row.candidates_us),
        seconds=tuple(row.seconds / len(row.candidates_us) for row in rounds for _ in row.candidates_us),
        runs_dry=len(last.candidates_us) < last.size,
    )
