"""The live view of a job."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from cli.watch.eta import Eta
from cli.watch.full_view import LiveView, WholeView
from cli.watch.status_text import LineView, advice, best, share, words
from mallorn.core.device_wait_hint import command_for
from mallorn.core.errors import Unavailable
from mallorn.core.states import JobState
from mallorn.core.values.job import JobStatus
from mallorn.first_version import FirstVersion
from mallorn.job import Job
from mallorn.wording.format_values import headroom, spent_of

REFRESH_SEC: Final = 0.5
SILENCE_SEC: Final = 120.0
Show = Callable[[JobStatus], None]
# In these states nobody knows how much is left: the bar moves, and says no share.
UNCOUNTED: Final = (JobState.IMPORTING, JobState.FINISHING)


def follow(job: Job, console: Console, first: FirstVersion, verbose: bool = False) -> JobStatus:
    """Show a job until it ends, and its first version before; return what became of it.

    On a terminal a live bar (with `verbose` its curve and the table of tasks below it), elsewhere lines.
    """
    if not console.is_terminal:
        say = partial(console.print, markup=False, soft_wrap=True)
        return _until_final(job, _advised(LineView(say).show, console, first))
    bar = BarView(job, console)
    view: LiveView = WholeView(job, console, bar) if verbose else bar
    with Live(view.render(), console=console, refresh_per_second=4, get_renderable=view.render):
        return _until_final(job, _advised(view.show, console, first))


def _advised(show: Show, console: Console, first: FirstVersion) -> Show:
    """Shows, and says once in lines that stay what changes what a user does.

    What a small budget comes to, what to type where no device will come, where a first version is.
    """
    said: set[str] = set()

    def both(job: JobStatus) -> None:
        for told in (advice(job), command_for(job.reason, job.cause), first.news(job)):
            if told and told not in said:
                console.print(Text(told), soft_wrap=True)
                said.add(told)
        show(job)

    return both


def _until_final(job: Job, show: Show) -> JobStatus:
    heard_at = time.monotonic()
    while True:
        try:
            status = job.refresh()
            heard_at = time.monotonic()
            show(status)
        except Unavailable:
            if time.monotonic() - heard_at > SILENCE_SEC:
                raise
        if job.stuck or job.status.state.final:
            return job.status
        time.sleep(REFRESH_SEC)


class BarView:
    """A bar with trials, best latency and time left."""

    def __init__(self, job: Job, console: Console) -> None:
        self._pace = Eta()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[spent]} trials  {task.fields[best]}  {task.fields[left]}"),
            console=console,
        )
        self._bar_id: TaskID = self._bar.add_task(
            job.status.state, total=1.0, spent=spent_of(job.status, "/"), best="", left=""
        )
        self._words: list[str] = []

    def show(self, job: JobStatus) -> None:
        # Nobody knows yet how many trials a job that ends by itself will take.
        open_ended = job.state is JobState.TUNING and job.auto and job.outlook is None
        self._bar.update(
            self._bar_id,
            description=job.state,
            completed=share(job),
            total=None if job.state in UNCOUNTED or open_ended else 1.0,
            spent=spent_of(job, "/"),
            best=best(job),
            left=self._pace.left(job),
        )
        self._words = [line for line in (words(job), headroom(job)) if line]

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [self._bar]
        parts += [Text(line, style="dim") for line in self._words]
        return Group(*parts)
