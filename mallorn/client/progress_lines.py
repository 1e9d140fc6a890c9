"""A job's progress as a share and as lines of text, and download of its first export."""

import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mallorn.client.job import Job
from mallorn.core.errors import MallornError, Unavailable
from mallorn.core.format_text import escape_control_characters
from mallorn.core.states import JobState
from mallorn.core.values.event import ExportedEvent
from mallorn.core.values.job import JobStatus
from mallorn.results.judge_job import DOING
from mallorn.wording.format_values import describe_headroom, format_latency, format_spent_trials

# Trials for each task: below the first, it gets less than one round; the second is a usual budget.
FEW_A_TASK: Final = 16
USUAL_A_TASK: Final = 64
LONG_STATES: Final = (JobState.IMPORTING, JobState.FINISHING)
LONG_STEP_SEC: Final = 10.0  # longest time without a line in these states
NOW_AND_THEN_SEC: Final = 30.0  # longest time without a line while something changes


def completed_share(job: JobStatus) -> float:
    """Return the share of a job that is done, by its step or its budget."""
    if (step := job.progress.step) is not None and step.total:
        return min(1.0, step.done / step.total)
    if job.state.is_final:
        return 1.0
    if job.minutes is None or job.trials is not None:
        expected = job.expected_trials
        return min(1.0, job.progress.trials / expected) if expected else 0.0
    return min(1.0, max(0.0, (time.time() - job.created_at) / (60 * job.minutes)))


def describe_activity(job: JobStatus) -> str:
    """Return what a job waits for or is doing, as text; empty while it tunes."""
    return job.explanation or ("" if job.state is JobState.TUNING else DOING.get(job.state, ""))


def describe_best_latency(job: JobStatus) -> str:
    """Return a text on the best latency so far and how many tasks have a time."""
    progress = job.progress
    if job.state not in (JobState.TUNING, JobState.PAUSED):
        return ""
    count_words = f"{progress.tasks_measured} of {progress.tasks} tasks timed"
    lacks_times = progress.tasks_measured < progress.tasks
    if progress.estimated_us is None:
        return count_words if lacks_times else ""
    return f"best {format_latency(progress.estimated_us)}{f' ({count_words})' if lacks_times else ''}"


def advise_on_budget(job: JobStatus) -> str:
    """Return advice if the budget is small for the number of tasks; else an empty text."""
    tasks, budget = job.progress.tasks, job.trials
    if job.state is not JobState.TUNING or not tasks or not budget or job.progress.trials:
        return ""
    if budget >= tasks * FEW_A_TASK or job.options.only:
        return ""  # with `only`, the progress counts tasks that get no trials
    usual, per_task = tasks * USUAL_A_TASK, max(1, round(budget / tasks))
    return (
        f"{budget} trials for {tasks} tasks: about {per_task} a task, the heaviest first. "
        f"A search needs some {USUAL_A_TASK} a task, here --trials {usual}; "
        "more can be added when the job is done."
    )


def summary(job: JobStatus) -> str:
    """Return a job's status in one line."""
    failures = sum(job.progress.failures.values())
    parts = [
        job.state,
        f"{format_spent_trials(job, '/')} trials",
        describe_best_latency(job),
        f"{failures} failed" if failures else "",
        describe_activity(job),
        describe_headroom(job) if job.has_auto_budget and not job.state.is_final else "",
    ]
    return "  ".join(part for part in parts if part)


class LineView:
    """Prints a line when a job's state, wait, step or tenth done changes, or after 30 s. A
    step of an import or a finish is repeated every 10 s with its duration."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._text = ""
        self._kind: tuple[str, str, str, int] | None = None
        self._printed_sec = self._began_sec = -math.inf

    def show(self, job: JobStatus) -> None:
        text, now_sec = summary(job), self._clock()
        step = job.progress.step.name if job.progress.step else ""
        kind = job.state, job.waiting_because, step, int(10 * completed_share(job))
        is_due = kind != self._kind or now_sec - self._printed_sec >= NOW_AND_THEN_SEC
        if text != self._text and is_due:
            self._say(text)
            self._text, self._kind, self._printed_sec = text, kind, now_sec
            self._began_sec = now_sec
        elif job.state in LONG_STATES and now_sec - self._printed_sec >= LONG_STEP_SEC:
            self._say(f"{text}  for {now_sec - self._began_sec:.0f} s")
            self._printed_sec = now_sec


def print_line(line: str) -> None:
    """Print a line to stderr; do nothing if that fails, as when it is closed."""
    with suppress(OSError):
        sys.stderr.write(f"{escape_control_characters(line)}\n")
        sys.stderr.flush()


@dataclass
class FirstExport:
    """Downloads a job's first export to the folder `to`, or shows `to` if it is a text."""

    job: Job
    to: Path | str
    is_told: bool = False

    def announce_first_export(self, status: JobStatus) -> str:
        """Return one line when the first export appears; an empty text in all other calls.

        If the files cannot be written, the line is the error; the job's end raises it again.
        """
        if self.is_told or not status.exported or status.report is not None or status.state.is_final:
            return ""
        try:
            location = self.to if isinstance(self.to, str) else self.job.fetch(self.to)
            export = next(
                (event.parsed_event for event in self.job.events() if event.kind == "exported"), None
            )
            moment = "is exported"
            if isinstance(export, ExportedEvent):
                ratio = "" if export.latency_ratio is None else f", {export.latency_ratio:.2f} of onnxruntime"
                moment = f"after {export.seconds:.0f} s{ratio}"
            line = f"first export {moment}: {location}"
        except Unavailable:
            return ""  # the next call tries again
        except MallornError as error:
            line = error.message
        self.is_told = True
        return line
