"""The live view of a job."""

import time
from collections.abc import Callable
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from mallorn.commands.live import View, WholeView
from mallorn.commands.output import duration, first_line, latency
from mallorn.core.errors import Unavailable
from mallorn.core.states import JobState
from mallorn.job import Job

REFRESH_SEC: Final = 0.5
SILENCE_SEC: Final = 120.0
DOING: Final[dict[str, str]] = {
    JobState.QUEUED: "waits for a worker",
    JobState.IMPORTING: "reads the model and splits it into tasks",
    JobState.FINISHING: "measures the best again, checks what they compute, times the whole model",
}
# In these states nobody knows how much is left: the bar moves, and says no share.
UNCOUNTED: Final = (JobState.IMPORTING, JobState.FINISHING)


def follow(job: Job, console: Console, verbose: bool = False) -> dict[str, Any]:
    """Show a job until it ends and return it as the API gives it.

    On a terminal a live bar (with `verbose` its curve and the table of tasks below it), elsewhere a line for
    every change.
    """
    if not console.is_terminal:
        return _until_final(job, LineView(console).show)
    bar = BarView(job, console)
    view: View = WholeView(job, console, bar) if verbose else bar
    with Live(view.render(), console=console, refresh_per_second=4, get_renderable=view.render):
        return _until_final(job, view.show)


def _until_final(job: Job, show: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    heard_at = time.monotonic()
    while True:
        try:
            body = job.refresh()
            heard_at = time.monotonic()
            show(body)
        except Unavailable:
            if time.monotonic() - heard_at > SILENCE_SEC:
                raise
        if JobState(job.body["state"]).final:
            return job.body
        time.sleep(REFRESH_SEC)


class LineView:
    """One line for each change, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ""

    def show(self, body: dict[str, Any]) -> None:
        line = summary(body)
        if line != self._last:
            self._console.print(line, markup=False, soft_wrap=True)
            self._last = line


class BarView:
    """A bar with trials, best latency and time left."""

    def __init__(self, job: Job, console: Console) -> None:
        self._pace = Pace()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("trials  best {task.fields[best]}  {task.fields[left]}"),
            console=console,
        )
        self._bar_id: TaskID = self._bar.add_task(
            job.body["state"], total=job.body["trials"], best="-", left=""
        )
        self._words = ""

    def show(self, body: dict[str, Any]) -> None:
        spent, budget = body["progress"]["trials"], body["trials"]
        self._bar.update(
            self._bar_id,
            description=body["state"],
            completed=spent,
            total=None if body["state"] in UNCOUNTED else budget,
            best=latency(body["progress"]["estimated_us"]),
            left=self._pace.left(spent, budget),
        )
        self._words = words(body)

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [self._bar]
        if self._words:
            parts.append(Text(self._words, style="dim"))
        return Group(*parts)


class Pace:
    """Estimates the time left from the trials since the view opened."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start: tuple[float, int] | None = None

    def left(self, spent: int, budget: int) -> str:
        now_sec = self._clock()
        if self._start is None:
            self._start = (now_sec, spent)
        since_sec, first = self._start
        if spent <= first or spent >= budget:
            return ""
        return f"{duration((now_sec - since_sec) / (spent - first) * (budget - spent))} left"


def words(body: dict[str, Any]) -> str:
    """What a job waits for or is busy with."""
    return first_line(body["reason"]) or DOING.get(body["state"], "")


def summary(body: dict[str, Any]) -> str:
    """A job in one line."""
    progress = body["progress"]
    failures = sum(progress["failures"].values())
    parts = [
        body["state"],
        f"{progress['trials']}/{body['trials']} trials",
        f"best {latency(progress['estimated_us'])}" if progress["estimated_us"] is not None else "",
        f"{failures} failed" if failures else "",
        words(body),
    ]
    return "  ".join(part for part in parts if part)
