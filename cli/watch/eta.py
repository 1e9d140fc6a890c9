"""How long a job that is followed still takes, the finish included."""

import time
from collections.abc import Callable
from typing import Final

from mallorn.core.finish_reserve import finish_sec
from mallorn.core.states import JobState
from mallorn.core.values.job import JobStatus

# How much of the way a new estimate moves the old one: single rounds are fast or slow by chance.
TRUST: Final = 0.3
LONG_SEC: Final = 90 * 60.0


class Eta:
    """Estimates from the trials since the view opened; between two looks the time left only falls."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._start: tuple[float, int] | None = None
        self._seen = 0
        self._tuned_at: float | None = None
        self._finishing_since: float | None = None

    def left(self, job: JobStatus) -> str:
        """In words; empty where nobody can tell."""
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
        known = [] if self._tuned_at is None else [max(0.0, self._tuned_at - now_sec) + _finish_sec(job)]
        return min([*known, *_by_clock(job, now_sec)], default=None)

    def _look(self, job: JobStatus, now_sec: float) -> None:
        """Move the estimated end of the tuning where trials came in since the last look."""
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
    """As coarse as such an estimate is: `about 4 min left`."""
    if seconds < 45:
        return "less than a minute left"
    if seconds < LONG_SEC:
        return f"about {max(1, round(seconds / 60))} min left"
    return f"about {seconds / 3600:.1f} h left"


def _by_clock(job: JobStatus, now_sec: float) -> list[float]:
    """Minutes hold from the submit to the first export."""
    if job.minutes is None or job.exported:
        return []
    return [job.created_at + 60 * job.minutes - now_sec]


def _finish_sec(job: JobStatus) -> float:
    """As long as the job's last finish took, else as long as is set aside for one."""
    known = job.report.finish_sec if job.report else None
    return finish_sec(job.progress.tasks) if known is None else known
