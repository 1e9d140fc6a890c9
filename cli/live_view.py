"""Live view of a job on a terminal: progress bar, time left, curve and slowest tasks."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from mallorn.cli.terminal.output import table
from mallorn.client.job import Job
from mallorn.client.progress_lines import (
    FirstExport,
    LineView,
    advise_on_budget,
    completed_share,
    describe_activity,
    describe_best_latency,
)
from mallorn.core.errors import Unavailable
from mallorn.core.estimate_finish_time import finish_sec
from mallorn.core.states import Cause, JobState
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.results.best_so_far_curve import CurvePoint, best_total, curve
from mallorn.wording.describe_results import TASK_COLUMNS
from mallorn.wording.format_values import describe_headroom, format_latency, format_spent_trials

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
REFRESH_SEC: Final = 0.5
SILENCE_SEC: Final = 120.0
Show = Callable[[JobStatus], None]
Say = Callable[[str], None]
# In these states the amount of work left is unknown: the bar moves without a percentage.
UNCOUNTED: Final = (JobState.IMPORTING, JobState.FINISHING)
# Weight of a new estimate against the old one: single rounds are fast or slow by chance.
TRUST: Final = 0.3
LONG_SEC: Final = 90 * 60.0


def plot(points: Sequence[CurvePoint], width: int, height: int = HEIGHT) -> list[str]:
    """Plot latency (log axis) over trials as lines of text; [] for lack of data or room."""
    if len(points) < 2 or width < MARGIN + LEAST_WIDTH:
        return []
    last, fields = points[-1].trials, width - MARGIN
    slowest, fastest = points[0].total_us, points[-1].total_us
    columns, levels = fields * COLUMNS, height * ROWS
    canvas = [[0] * fields for _ in range(height)]
    last_level = None
    for column in range(columns):
        value = best_total(points, round(last * column / (columns - 1)))
        if value is None:
            continue
        level = levels - 1  # dots from the top; at the bottom if latencies never changed
        if slowest != fastest:
            level = round((levels - 1) * math.log(slowest / value) / math.log(slowest / fastest))
        # A falling stepped line: each column begins at the level of the one before.
        for dot in range(level if last_level is None else min(level, last_level), level + 1):
            canvas[dot // ROWS][column // COLUMNS] |= DOTS[column % COLUMNS][dot % ROWS]
        last_level = level
    rows = ["".join(chr(BRAILLE + bits) for bits in row) for row in canvas]
    labels = [format_latency(slowest), *[""] * (height - 2), format_latency(fastest)]
    lines = [f"{label:>{MARGIN - 2}} ┤{row}" for label, row in zip(labels, rows, strict=True)]
    return [*lines, f"{'':>{MARGIN}}0{f'{last} trials':>{fields - 1}}"]


class RoundsSoFar:
    """Caches a job's rounds; `refresh` fetches only the oldest open one and newer ones."""

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
        while (next_one := self._rows.get(self._settled + 1)) is not None and not next_one.state.is_open:
            self._settled += 1
        return [self._rows[index] for index in sorted(self._rows)]

    def forget(self) -> None:
        """Clear the cache: a job's last checks may have changed results of ended rounds."""
        self._rows.clear()
        self._settled = -1


class WholeView:
    """A progress bar with the best-so-far curve and the table of tasks below it."""

    def __init__(self, job: Job, console: Console, bar: "BarView") -> None:
        self._job = job
        self._console = console
        self._bar = bar
        self._so_far = RoundsSoFar(job)
        self._tasks: list[TaskStatus] = []
        self._rounds: list[RoundStatus] = []

    def show(self, job: JobStatus) -> None:
        self._bar.show(job)
        if job.state.is_final:
            self._so_far.forget()
        self._tasks = self._job.tasks()
        self._rounds = self._so_far.refresh()

    def render(self) -> RenderableType:
        parts = [self._bar.render()]
        points = curve(self._rounds, self._tasks, self._job.status.created_at)
        parts += [Text(line) for line in plot(points, self._console.width)]
        if self._tasks:
            row_count = max(LEAST_ROWS, self._console.height - OTHER_LINES)
            visible = select_slowest_tasks(self._tasks, row_count)
            parts.append(table(visible, TASK_COLUMNS))
            if hidden_count := len(self._tasks) - len(visible):
                note = f"{hidden_count} more that weigh less; all with   mallorn jobs tasks {self._job.id}"
                parts.append(Text(note, style="dim"))
        return Group(*parts)


def select_slowest_tasks(tasks: Sequence[TaskStatus], count: int) -> list[TaskStatus]:
    """Return the `count` slowest tasks, sorted by index; untimed tasks take precedence."""

    def rank(task: TaskStatus) -> tuple[bool, float]:
        known_us = task.weighted_latency_us
        return known_us is not None, -(task.flops * task.weight if known_us is None else known_us)

    return sorted(sorted(tasks, key=rank)[:count], key=lambda task: task.index)


def show_until_ended(
    firsts: Mapping[str, FirstExport],
    console: Console,
    verbose: bool = False,
    check_runs: Callable[[], None] = lambda: None,
) -> None:
    """Show jobs until all have ended or are stuck, and announce their first exports.

    The names of `firsts` precede what is shown of their jobs. On a terminal each job has a
    live bar (with `verbose`, also the curve and the table of tasks), else lines.
    `check_runs` is called when the service does not answer; it raises Unavailable if the
    service ended.
    """
    views: list[BarView | WholeView | LineView] = []
    shows: list[tuple[Job, Show]] = []
    for name, first in firsts.items():
        label = f"{name:<{max(map(len, firsts))}}  " if name else ""

        def say(text: str, label: str = label) -> None:
            console.print(Text(label + text), soft_wrap=True)

        view = BarView(first.job, console, label) if console.is_terminal else LineView(say)
        views.append(WholeView(first.job, console, view) if verbose and isinstance(view, BarView) else view)
        shows.append((first.job, _print_messages_once(views[-1].show, say, first)))

    def render() -> Group:
        return Group(*(view.render() for view in views if not isinstance(view, LineView)))

    live = Live(console=console, refresh_per_second=4, get_renderable=render)
    with live if console.is_terminal else nullcontext():
        _until_final(shows, check_runs)


def _print_messages_once(show: Show, say: Say, first: FirstExport) -> Show:
    """Return a function that shows a job and prints each message for the user once.

    It prints advice on a small budget, how to start a missing device, and the first export.
    """
    printed: set[str] = set()

    def show_and_print(job: JobStatus) -> None:
        for message in (
            advise_on_budget(job),
            f"next: {job.hint}" if job.cause in (Cause.NOT_HERE, Cause.UNLIKE) else "",
            first.announce_first_export(job),
        ):
            if message and message not in printed:
                say(message)
                printed.add(message)
        show(job)

    return show_and_print


def _until_final(shows: list[tuple[Job, Show]], check_runs: Callable[[], None]) -> None:
    answered_at = time.monotonic()
    while True:
        for job, show in shows:
            try:
                status = job.refresh()
                answered_at = time.monotonic()
                show(status)
            except Unavailable:
                check_runs()
                if time.monotonic() - answered_at > SILENCE_SEC:
                    raise
        shows = [(job, show) for job, show in shows if not (job.is_stuck or job.status.state.is_final)]
        if not shows:
            return
        time.sleep(REFRESH_SEC)


class BarView:
    """A progress bar with trials, best latency and time left."""

    def __init__(self, job: Job, console: Console, label: str = "") -> None:
        self._label = label
        self._pace = Eta()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[spent]} trials  {task.fields[best]}  {task.fields[left]}"),
            console=console,
        )
        self._bar_id: TaskID = self._bar.add_task(
            label + job.status.state, total=1.0, spent=format_spent_trials(job.status, "/"), best="", left=""
        )
        self._words: list[str] = []

    def show(self, job: JobStatus) -> None:
        # How many trials a job without a budget will take is not known yet.
        open_ended = job.state is JobState.TUNING and job.has_auto_budget and job.outlook is None
        self._bar.update(
            self._bar_id,
            description=self._label + job.state,
            completed=completed_share(job),
            total=None if job.state in UNCOUNTED or open_ended else 1.0,
            spent=format_spent_trials(job, "/"),
            best=describe_best_latency(job),
            left=self._pace.left(job),
        )
        self._words = [line for line in (describe_activity(job), describe_headroom(job)) if line]

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [self._bar]
        parts += [Text(line, style="dim") for line in self._words]
        return Group(*parts)


class Eta:
    """Estimates the time left from the pace of trials; without new trials it only falls."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._start: tuple[float, int] | None = None
        self._seen = 0
        self._tuned_at: float | None = None
        self._finishing_since: float | None = None

    def left(self, job: JobStatus) -> str:
        """Return the time left as text; empty if it is unknown."""
        now_sec = self._clock()
        estimates: list[float] = []
        if job.state is JobState.FINISHING:
            if self._finishing_since is None:
                self._finishing_since = now_sec
            estimates = [self._finishing_since + _finish_sec(job) - now_sec]
        else:
            self._finishing_since = None
        if job.state is JobState.TUNING:
            trials, budget = job.progress.trials, job.expected_trials if job.minutes is None else job.trials
            if self._start is None:
                self._start, self._seen = (now_sec, trials), trials
            if budget is not None and trials != self._seen:
                self._seen = trials
                since_sec, first = self._start
                ends_at = now_sec + (now_sec - since_sec) / (trials - first) * max(0, budget - trials)
                last_estimate = ends_at if self._tuned_at is None else self._tuned_at
                self._tuned_at = last_estimate + TRUST * (ends_at - last_estimate)
            if self._tuned_at is not None:
                estimates.append(max(0.0, self._tuned_at - now_sec) + _finish_sec(job))
            if job.minutes is not None and not job.exported:  # minutes count from submit to first export
                estimates.append(job.created_at + 60 * job.minutes - now_sec)
        left_sec = min(estimates, default=0.0)
        return "" if left_sec <= 0 else format_coarse_time(left_sec)


def format_coarse_time(seconds: float) -> str:
    """Return a time left in coarse words, such as `about 4 min left`."""
    if seconds < 45:
        return "less than a minute left"
    if seconds < LONG_SEC:
        return f"about {max(1, round(seconds / 60))} min left"
    return f"about {seconds / 3600:.1f} h left"


def _finish_sec(job: JobStatus) -> float:
    last_sec = job.report.finish_sec if job.report else None
    return finish_sec(job.progress.tasks) if last_sec is None else last_sec
