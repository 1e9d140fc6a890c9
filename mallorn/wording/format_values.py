"""Values as people read them, on a terminal, in a report, in a notebook; and columns of tables of them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from mallorn.core.percent_and_command_text import percent
from mallorn.core.values.job import JobStatus

T = TypeVar("T")
Cell = str | int | float | None
NAME_LENGTH: Final = 200
FILE_NAME_BYTES: Final = 255  # of a part of a path, as file systems have it
CUT: Final = "..."
# The commands with an option `--data`.
TAKE_DATA: Final = frozenset(
    (
        *("tune", "submit", "up", "jobs", "show", "tasks", "explain", "compare", "report"),
        *("watch", "pause", "resume", "cancel", "models", "schedules", "records"),
    )
)
AUTO: Final = "as many trials as are worth it"
NOW_SEC: Final = 15.0  # devices and workers are seen every few seconds


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table of such values."""

    heading: str
    of: Callable[[T], Cell]
    cut: bool = False  # of one long word: cut, not folded, where room is short


def cell(value: Cell) -> str:
    """A value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def first_line(text: str) -> str:
    """What happened; what to do about it, or a compiler's whole story, follows on the other lines."""
    return text.strip().partition("\n")[0]


def short_name(name: str) -> str:
    """A name of no more characters than the service keeps; of a longer one both ends are left."""
    if len(name) <= NAME_LENGTH:
        return name
    half = (NAME_LENGTH - len(CUT)) // 2
    return f"{name[:half]}{CUT}{name[-half:]}"


def file_name(name: str, ending: str) -> str:
    """Return a file name that begins with `name`, cut where the name and `ending` are too long together."""
    kept, room = os.fsencode(short_name(name)), FILE_NAME_BYTES - len(os.fsencode(ending))
    return (os.fsdecode(kept) if len(kept) <= room else kept[:room].decode(errors="ignore")) + ending


def placed(hint: str, words: str) -> str:
    """A hint whose command finds the same data directory: `words` go behind it, before what is said of it."""
    command, gap, remark = hint.partition("   ")
    called = command.split()[:2]
    takes_it = called[:1] == ["mallorn"] and called[-1] in TAKE_DATA
    return f"{command}{words}{gap}{remark}" if takes_it else hint


def duration(seconds: float) -> str:
    """`75.2` as `1:15`, from an hour on `1:01:15`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def ago(seconds: float) -> str:
    """`75.2` as `1:15 ago`; what was a moment ago is `now`."""
    return "now" if seconds < NOW_SEC else f"{duration(seconds)} ago"


def moment(at_sec: float) -> str:
    """A time since the epoch as the minute in UTC."""
    return datetime.fromtimestamp(at_sec, UTC).strftime("%Y-%m-%d %H:%M")


def latency(value_us: float | None) -> str:
    """Microseconds with a unit that keeps three digits readable."""
    if value_us is None:
        return "-"
    return f"{value_us / 1000:.3f} ms" if value_us >= 1000 else f"{value_us:.1f} us"


def budget_words(job: JobStatus) -> str:
    """What a job may spend, as `200 trials`, `60 minutes` or both; or how it does without."""
    if not job.options.searches:
        return job.options.mode
    if job.auto:
        return AUTO
    known = {"trials": job.trials, "minutes": job.minutes}
    return " or ".join(f"{value:g} {unit}" for unit, value in known.items() if value is not None)


def spent_of(job: JobStatus, between: str = " of ") -> str:
    """How many trials of its budget a job has spent, as `16 of 200`; `16` where trials do not limit it."""
    spent = job.progress.trials
    return str(spent) if job.trials is None else f"{spent}{between}{job.trials}"


def headroom(job: JobStatus) -> str:
    """The tasks' latency now, what the machine takes at least, what the end may bring; empty: unknown."""
    ahead = job.outlook
    if ahead is None:
        return ""
    told = [f"{latency(ahead.now_us)} now"]
    if ahead.limit_us is not None and ahead.reached is not None:
        least, reached = latency(ahead.limit_us), percent(ahead.reached)
        told.append(f"this machine takes at least {least} ({reached} reached)")
    if ahead.trials and not job.state.final:
        end = latency(ahead.end_us)
        told.append(f"about {end} expected after some {ahead.trials:,} more trials")
    return "; ".join([*told, ahead.left] if ahead.left else told)
