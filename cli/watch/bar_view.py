"""The live view of a job: a progress bar with an estimate of the time left."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from cli.watch.full_view import LiveView, WholeView
from mallorn.core.device_wait_hint import command_for
from mallorn.core.errors import Unavailable
from mallorn.core.finish_reserve import finish_sec
from mallorn.core.states import JobState
from mallorn.core.values.job import JobStatus
from mallorn.job import Job
from mallorn.progress_lines import FirstVersion, LineView, advice, best, share, words
from mallorn.wording.format_values import headroom, spent_of

REFRESH_SEC: Final = 0.5
SILENCE_SEC: Final = 120.0
Show = Callable[[JobStatus], None]
# In these states the amount of work left is unknown: the bar moves without a percentage.
UNCOUNTED: Final = (JobState.IMPORTING, JobState.FINISHING)


def follow(
    job: Job,
    console: Console,
    first: FirstVersion,
    verbose: bool = False,
    check_runs: Callable[[], None] = lambda: None,
) -> JobStatus:
    """Show a job until it ends, and announce its first version; return the final status.

    On a terminal it shows a live bar (with `verbose`, also the curve and the table of tasks), else lines.
    `check_runs` is called when the service does not answer; it raises Unavailable if the service ended.
    """
    if not console.is_terminal:
        say = partial(console.print, markup=False, soft_wrap=True)
        return _until_final(job, _advised(LineView(say).show, console, first), check_runs)
    bar = BarView(job, console)
    view: LiveView = WholeView(job, console, bar) if verbose else bar
    with Live(view.render(), console=console, refresh_per_second=4, get_renderable=view.render):
        return _until_final(job, _advised(view.show, console, first), check_runs)


def _advised(show: Show, console: Console, first: FirstVersion) -> Show:
    """Return a function that shows a job and prints messages for the user, each of them once.

    These are advice on a small budget, the command that starts a missing device, and the first version.
    """
    printed: set[str] = set()

    def both(job: JobStatus) -> None:
        for message in (advice(job), command_for(job.reason, job.cause), first.news(job)):
            if message and message not in printed:
                console.print(Text(message), soft_wrap=True)
                printed.add(message)
        show(job)

    return both


def _until_final(job: Job, show: Show, check_runs: Callable[[], None]) -> JobStatus:
    answered_at = time.monotonic()
    while True:
        try:
            status = job.refresh()
            answered_at = time.monotonic()
            show(status)
        except Unavailable:
            check_runs()
            if time.monotonic() - answered_at > SILENCE_SEC:
                raise
        if job.stuck or job.status.state.final:
            return job.status
        time.sleep(REFRESH_SEC)


class BarView:
    """A progress bar with trials, best latency and time left."""

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
        # How many trials a job without a budget will take is not known yet.
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


# Weight of a new estimate against the old one, since single rounds are fast or slow by chance.
TRUST: Final = 0.3
LONG_SEC: Final = 90 * 60.0


class Eta:
    """Estimates the time left from the trials since the view opened; it only falls between new trials."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._start: tuple[float, int] | None = None
        self._seen = 0
        self._tuned_at: float | None = None
        self._finishing_since: float | None = None

    def left(self, job: JobStatus) -> str:
        """Return the time left in words; empty if it is unknown."""
        now_sec = self._clock()
        left_sec = self._left_sec(job, now_sec)
        return "" if left_sec is None or left_sec <= 0 else about(left_sec)

    def _left_sec(self, job: JobStatus, now_sec: float) -> float | None:
        if job.state is JobState.FINISHING:
            if self._finishing_since is None:
                self._finishing_since = now_sec
            return self._finishing_since + _finish_sec(job) - now_sec
        self._finishing_since = None
        if job.state is not JobState.TUNING:
            return None
        self._look(job, now_sec)
        estimates = [] if self._tuned_at is None else [max(0.0, self._tuned_at - now_sec) + _finish_sec(job)]
        if job.minutes is not None and not job.exported:  # minutes count from submit to first export
            estimates.append(job.created_at + 60 * job.minutes - now_sec)
        return min(estimates, default=None)

    def _look(self, job: JobStatus, now_sec: float) -> None:
        """Update the estimated end of tuning if trials were measured since the last call."""
        spent, budget = job.progress.trials, job.expected_trials if job.minutes is None else job.trials
        if self._start is None:
            self._start, self._seen = (now_sec, spent), spent
        if budget is None or spent == self._seen:
            return
        self._seen = spent
        since_sec, first = self._start
        ends_at = now_sec + (now_sec - since_sec) / (spent - first) * max(0, budget - spent)
        before = ends_at if self._tuned_at is None else self._tuned_at
        self._tuned_at = before + TRUST * (ends_at - before)


def about(seconds: float) -> str:
    """Return a time left in coarse words, such as `about 4 min left`."""
    if seconds < 45:
        return "less than a minute left"
    if seconds < LONG_SEC:
        return f"about {max(1, round(seconds / 60))} min left"
    return f"about {seconds / 3600:.1f} h left"


def _finish_sec(job: JobStatus) -> float:
    """Return the seconds of the job's last finish, else the seconds reserved for one."""
    last_sec = job.report.finish_sec if job.report else None
    return finish_sec(job.progress.tasks) if last_sec is None else last_sec
