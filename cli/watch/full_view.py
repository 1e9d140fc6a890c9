"""The detailed view of a job on a terminal: progress bar, curve, and as many tasks as fit."""

import math
from collections.abc import Sequence
from typing import Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cli.terminal.output import table
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.job import Job
from mallorn.results.best_so_far_curve import CurvePoint, at_trials, curve
from mallorn.wording.format_values import latency
from mallorn.wording.tasks import TASK_COLUMNS

HEIGHT: Final = 6
LEAST_WIDTH: Final = 20
MARGIN: Final = 14  # width of the latencies and the axis on the left
# Braille characters have two columns of four dots; DOTS holds the bits of each column, top first.
BRAILLE: Final = 0x2800
DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
COLUMNS, ROWS = len(DOTS), len(DOTS[0])
PAGE = 50
OTHER_LINES: Final = HEIGHT + 8  # bar, words, axis, the table's two header lines, and a note
LEAST_ROWS: Final = 3


def plot(points: Sequence[CurvePoint], width: int, height: int = HEIGHT) -> list[str]:
    """Return lines that plot weighted latency (log axis) over trials; [] for too few points or columns."""
    if len(points) < 2 or width < MARGIN + LEAST_WIDTH:
        return []
    last, fields = points[-1].trials, width - MARGIN
    slowest, fastest = points[0].total_us, points[-1].total_us
    columns = fields * COLUMNS
    values = [at_trials(points, round(last * i / (columns - 1))) for i in range(columns)]
    canvas = _draw([_level(value, slowest, fastest, height * ROWS) for value in values], height)
    labels = [latency(slowest), *[""] * (height - 2), latency(fastest)]
    lines = [f"{label:>{MARGIN - 2}} ┤{row}" for label, row in zip(labels, canvas, strict=True)]
    return [*lines, f"{'':>{MARGIN}}0{f'{last} trials':>{fields - 1}}"]


def _level(value: float | None, slowest: float, fastest: float, levels: int) -> int | None:
    """Return the distance from the top in dots; the bottom if latencies never changed."""
    if value is None:
        return None
    if slowest == fastest:
        return levels - 1
    return round((levels - 1) * math.log(slowest / value) / math.log(slowest / fastest))


def _draw(levels: Sequence[int | None], height: int) -> list[str]:
    """Draw the levels as rows of Braille characters, connected to a falling stepped line."""
    fields = [[0] * (len(levels) // COLUMNS) for _ in range(height)]
    before = None
    for column, level in enumerate(levels):
        if level is None:
            continue
        for dot in range(min(level, level if before is None else before), level + 1):
            fields[dot // ROWS][column // COLUMNS] |= DOTS[column % COLUMNS][dot % ROWS]
        before = level
    return ["".join(chr(BRAILLE + bits) for bits in row) for row in fields]


class RoundsSoFar:
    """Caches a job's rounds; `refresh` fetches the oldest open round and all newer ones."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._rows: dict[int, RoundStatus] = {}
        self._settled = -1  # all rounds up to this index have ended

    def refresh(self) -> list[RoundStatus]:
        """Fetch new rounds; return all rounds, oldest first."""
        for row in self._job.rounds(page_size=PAGE):
            if row.index <= self._settled:
                break
            self._rows[row.index] = row
        while (next_one := self._rows.get(self._settled + 1)) is not None and not next_one.state.open:
            self._settled += 1
        return [self._rows[index] for index in sorted(self._rows)]

    def forget(self) -> None:
        """Clear the cache: the finish may have found that a round's best gives wrong results."""
        self._rows.clear()
        self._settled = -1


class LiveView(Protocol):
    """A view that receives a job's status repeatedly and renders it in between."""

    def show(self, job: JobStatus) -> None: ...

    def render(self) -> RenderableType: ...


class WholeView:
    """A progress bar with the best-so-far curve and the table of tasks below it."""

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
            row_count = max(LEAST_ROWS, self._console.height - OTHER_LINES)
            visible = heaviest(self._tasks, row_count)
            parts.append(table(visible, TASK_COLUMNS))
            if hidden_count := len(self._tasks) - len(visible):
                note = f"{hidden_count} more that weigh less; all with   mallorn tasks {self._job.id}"
                parts.append(Text(note, style="dim"))
        return Group(*parts)


def heaviest(tasks: Sequence[TaskStatus], count: int) -> list[TaskStatus]:
    """Return the `count` tasks that take most time, by index; untimed tasks are preferred."""

    def rank(task: TaskStatus) -> tuple[bool, float]:
        known_us = task.weighted_latency_us
        return known_us is not None, -(task.flops * task.weight if known_us is None else known_us)

    return sorted(sorted(tasks, key=rank)[:count], key=lambda task: task.index)
