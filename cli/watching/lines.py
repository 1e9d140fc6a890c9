"""A job that is followed into a log or a pipe."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cli.watching.standing import share, summary, words
from mallorn.core.values.job import JobStatus

NOW_AND_THEN_SEC: Final = 30.0  # how long a log is silent while something changes
NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")


class LineView:
    """A line where the job's state or what it says changes, at every tenth of the way, and now and then."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._last: StatusLine | None = None

    def show(self, job: JobStatus) -> None:
        line = StatusLine.of(job, self._clock())
        if line.is_news_after(self._last):
            self._say(line.text)
            self._last = line


@dataclass(frozen=True, slots=True)
class StatusLine:
    """A job in one line, and what of it is worth another line."""

    text: str
    kind: tuple[str, str]  # its state, and what it says but for the numbers
    tenths: int
    printed_sec: float

    @classmethod
    def of(cls, job: JobStatus, now_sec: float) -> "StatusLine":
        said = words(job)
        return cls(summary(job), (job.state, NUMBER.sub("#", said)), int(10 * share(job)), now_sec)

    def is_news_after(self, last: "StatusLine | None") -> bool:
        if last is None or self.text == last.text:
            return last is None
        changed = self.kind != last.kind or self.tenths != last.tenths
        return changed or self.printed_sec - last.printed_sec >= NOW_AND_THEN_SEC
