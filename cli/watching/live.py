"""The whole of a job on a terminal: its bar, its curve, and MetaSchedule's table as far as there is room."""

from collections.abc import Sequence
from typing import Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cli.terminal.output import table
from cli.watching.plot import HEIGHT, plot
from cli.watching.rounds_so_far import RoundsSoFar
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.job import Job
from mallorn.results.history import curve
from mallorn.wording.tasks import TASK_COLUMNS

OTHER_LINES: Final = HEIGHT + 8  # bar, words, the axis, the table's head of two lines, what was left out
LEAST_ROWS: Final = 3


class LiveView(Protocol):
    """Something that is shown a job again and again, and drawn in between."""

    def show(self, job: JobStatus) -> None: ...

    def render(self) -> RenderableType: ...


class WholeView:
    """A bar with the best-so-far curve and the table of tasks below it."""

    def __init__(self, job: Job, console: Console, bar: LiveView) -> None:
        self._job = job
        self._console = console
        self._bar = bar
        self._so_far = RoundsSoFar(job)
        self._tasks: list[TaskStatus] = []
        self._rounds: list[RoundStatus] = []

    def show(self, job: JobStatus) -> None:
        self._bar.show(job)
        if job.state.final:
            self._so_far.forget()
        self._tasks = self._job.tasks()
        self._rounds = self._so_far.refresh()

    def render(self) -> RenderableType:
        parts = [self._bar.render()]
        points = curve(self._rounds, self._tasks, self._job.status.created_at)
        parts += [Text(line) for line in plot(points, self._console.width)]
        if self._tasks:
            parts += self._table()
        return Group(*parts)

    def _table(self) -> list[RenderableType]:
        room = max(LEAST_ROWS, self._console.height - OTHER_LINES)
        shown = heaviest(self._tasks, room)
        left_out = len(self._tasks) - len(shown)
        note = f"{left_out} more that weigh less; all with   mallorn tasks {self._job.id}"
        return [table(shown, TASK_COLUMNS), *([Text(note, style="dim")] if left_out else [])]


def heaviest(tasks: Sequence[TaskStatus], count: int) -> list[TaskStatus]:
    """The tasks that take most of the model's time, in their own order; what has no time yet comes first."""

    def rank(task: TaskStatus) -> tuple[bool, float]:
        known_us = task.weighted_latency_us
        return known_us is not None, -(task.flops * task.weight if known_us is None else known_us)

    return sorted(sorted(tasks, key=rank)[:count], key=lambda task: task.index)
