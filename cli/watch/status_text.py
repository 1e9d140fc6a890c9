"""How far a job is, in words and as a share of the way, and in lines for a log or a pipe."""

import math
import re
import time
from collections.abc import Callable
from typing import Final

from mallorn.core.states import JobState
from mallorn.core.values.job import JobStatus
from mallorn.results.verdict import DOING
from mallorn.wording.format_values import first_line, headroom, latency, spent_of

COUNTED: Final = re.compile(r"(\d{1,9}) of (\d{1,9}) tasks")
# A task with fewer trials gets less than one round; with so many it may find what it has to find.
FEW_A_TASK: Final = 16
USUAL_A_TASK: Final = 64
NOW_AND_THEN_SEC: Final = 30.0  # how long a log is silent while something changes
NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")


def share(job: JobStatus) -> float:
    """How much of the way is gone: of what is counted in words, else of the trials, else of the minutes.

    Of a job that ends by itself as far as one can tell.
    """
    if counted := COUNTED.search(words(job)):
        done, whole = (int(number) for number in counted.groups())
        return min(1.0, done / whole) if whole else 0.0
    if job.state.final:
        return 1.0
    if job.minutes is None or job.trials is not None:
        return (
            min(1.0, job.progress.trials / max(1, job.expected_trials or 0)) if job.expected_trials else 0.0
        )
    return min(1.0, max(0.0, (time.time() - job.created_at) / (60 * job.minutes)))


def words(job: JobStatus) -> str:
    """What a job waits for or is busy with."""
    return first_line(job.reason) or ("" if job.state is JobState.TUNING else DOING.get(job.state, ""))


def best(job: JobStatus) -> str:
    """The sum over tasks where it compares with what is shown later; until then how many have a time."""
    progress = job.progress
    if job.state not in (JobState.TUNING, JobState.PAUSED):
        return ""
    timed = f"{progress.tasks_measured} of {progress.tasks} tasks timed"
    missing = progress.tasks_measured < progress.tasks
    if progress.estimated_us is None:
        return timed if missing else ""
    return f"best {latency(progress.estimated_us)}{f' ({timed})' if missing else ''}"


def advice(job: JobStatus) -> str:
    """What a small budget comes to, once the tasks are known; empty where it is not small."""
    tasks, budget = job.progress.tasks, job.trials
    if job.state is not JobState.TUNING or not tasks or not budget or job.progress.trials:
        return ""
    if budget >= tasks * FEW_A_TASK:
        return ""
    usual, each = tasks * USUAL_A_TASK, max(1, round(budget / tasks))
    return (
        f"{budget} trials for {tasks} tasks: about {each} a task, the heaviest first. A search needs some "
        f"{USUAL_A_TASK} a task, here --trials {usual}; more can be added when the job is done."
    )


def summary(job: JobStatus) -> str:
    """A job in one line."""
    failures = sum(job.progress.failures.values())
    parts = [
        job.state,
        f"{spent_of(job, '/')} trials",
        best(job),
        f"{failures} failed" if failures else "",
        words(job),
        headroom(job) if job.auto and not job.state.final else "",
    ]
    return "  ".join(part for part in parts if part)


class LineView:
    """A line where the job's state or what it says changes, at every tenth of the way, and now and then."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._text = ""
        self._kind: tuple[str, str, int] | None = None
        self._printed_sec = -math.inf

    def show(self, job: JobStatus) -> None:
        text, now_sec = summary(job), self._clock()
        # What is worth another line: the state, what it says but for the numbers, the tenth of the way.
        kind = job.state, NUMBER.sub("#", words(job)), int(10 * share(job))
        is_due = kind != self._kind or now_sec - self._printed_sec >= NOW_AND_THEN_SEC
        if text != self._text and is_due:
            self._say(text)
            self._text, self._kind, self._printed_sec = text, kind, now_sec
