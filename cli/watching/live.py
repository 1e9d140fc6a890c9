"""The whole of a job on a terminal: its bar, its curve, and MetaSchedule's table as far as there is room."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cli.terminal.output import table
from cli.watching.ledger import Ledger
from cli.watching.plot import HEIGHT, plot
from mallorn.core.states import JobState
from mallorn.job import Job
from mallorn.results.history import curve
from mallorn.wording.tasks import TASK_COLUMNS

OTHER_LINES: Final = HEIGHT + 8  # bar, words, the axis, the table's head of two lines, what was left out
LEAST_ROWS: Final = 3


class View(Protocol):
    """Something that is shown a job again and again, and drawn in between."""

    def show(self, body: dict[str, Any]) -> None: ...

    def render(self) -> RenderableType: ...


class WholeView:
    """A bar with the best-so-far curve and the table of tasks below it."""

    def __init__(self, job: Job, console: Console, bar: View) -> None:
        self._job = job
        self._console = console
        self._bar = bar
        self._ledger = Ledger(job)
        self._tasks: list[dict[str, Any]] = []
        self._rounds: list[dict[str, Any]] = []

    def show(self, body: dict[str, Any]) -> None:
        self._bar.show(body)
        if JobState(body["state"]).final:
            self._ledger.forget()
        self._tasks = self._job.tasks()
        self._rounds = self._ledger.refresh()

    def render(self) -> RenderableType:
        parts = [self._bar.render()]
        points = curve(self._rounds, self._tasks, self._job.body["created_at"])
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


def heaviest(tasks: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The tasks that take most of the model's time, in their own order; what has no time yet comes first."""
    ranked = sorted(tasks, key=lambda task: (task["weighted_latency_us"] is not None, -_weight(task)))
    return sorted(ranked[:count], key=lambda task: int(task["index"]))


def _weight(task: dict[str, Any]) -> float:
    known = task["weighted_latency_us"]
    return float(task["flops"] * task["weight"] if known is None else known)
