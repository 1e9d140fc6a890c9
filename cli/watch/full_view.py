"""The whole of a job on a terminal: its bar, its curve, and MetaSchedule's table as far as there is room."""

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
MARGIN: Final = 14  # the latencies and the axis on the left
# Each character of this block is a field of two by four dots; the bits of its columns, from above.
BRAILLE: Final = 0x2800
DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
COLUMNS, ROWS = len(DOTS), len(DOTS[0])
PAGE = 50
OTHER_LINES: Final = HEIGHT + 8  # bar, words, the axis, the table's head of two lines, what was left out
LEAST_ROWS: Final = 3


def plot(points: Sequence[CurvePoint], width: int, height: int = HEIGHT) -> list[str]:
    """Lines of text: weighted total (a logarithmic axis) against trials. None for fewer than two points."""
    if len(points) < 2 or width < MARGIN + LEAST_WIDTH:
        return []
    last, fields = points[-1].trials, width - MARGIN
    slowest, fastest = points[0].total_us, points[-1].total_us
    columns = fields * COLUMNS
    values = [at_trials(points, round(last * at / (columns - 1))) for at in range(columns)]
    canvas = _draw([_level(value, slowest, fastest, height * ROWS) for value in values], height)
    labels = [latency(slowest), *[""] * (height - 2), latency(fastest)]
    lines = [f"{label:>{MARGIN - 2}} ┤{row}" for label, row in zip(labels, canvas, strict=True)]
    return [*lines, f"{'':>{MARGIN}}0{f'{last} trials':>{fields - 1}}"]


def _level(value: float | None, slowest: float, fastest: float, levels: int) -> int | None:
    """How far from the top, in dots; a job that gained nothing is a line at the bottom."""
    if value is None:
        return None
    if slowest == fastest:
        return levels - 1
    return round((levels - 1) * math.log(slowest / value) / math.log(slowest / fastest))


def _draw(levels: Sequence[int | None], height: int) -> list[str]:
    """Fields of dots, joined into a line that falls in steps."""
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
    """Keeps a job's rounds; `refresh` fetches the newest ones, back to the oldest that was still open."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._rows: dict[int, RoundStatus] = {}
        self._settled = -1  # up to this index every round is over

    def refresh(self) -> list[RoundStatus]:
        """All rounds, oldest first."""
        for row in self._job.rounds(page_size=PAGE):
            if row.index <= self._settled:
                break
            self._rows[row.index] = row
        while (next_one := self._rows.get(self._settled + 1)) is not None and not next_one.state.open:
            self._settled += 1
        return [self._rows[index] for index in sorted(self._rows)]

    def forget(self) -> None:
        """Ask for everything again: the finish may have found that a round's best computes wrong results."""
        self._rows.clear()
        self._settled = -1


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
            room = max(LEAST_ROWS, self._console.height - OTHER_LINES)
            shown = heaviest(self._tasks, room)
            parts.append(table(shown, TASK_COLUMNS))
            if left_out := len(self._tasks) - len(shown):
                note = f"{left_out} more that weigh less; all with   mallorn tasks {self._job.id}"
                parts.append(Text(note, style="dim"))
        return Group(*parts)


def heaviest(tasks: Sequence[TaskStatus], count: int) -> list[TaskStatus]:
    """The tasks that take most of the model's time, in their own order; what has no time yet comes first."""

    def rank(task: TaskStatus) -> tuple[bool, float]:
        known_us = task.weighted_latency_us
        return known_us is not None, -(task.flops * task.weight if known_us is None else known_us)

    return sorted(sorted(tasks, key=rank)[:count], key=lambda task: task.index)
