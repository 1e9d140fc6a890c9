"""Formatting of values and table columns for terminals, reports and notebooks."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from mallorn.core.format_text import percent
from mallorn.core.values.job import JobStatus

T = TypeVar("T")
Cell = str | int | float | None
NAME_LENGTH: Final = 200
FILE_NAME_BYTES: Final = 255  # usual limit of file systems for one part of a path
CUT: Final = "..."
# Commands that have an option `--data`.
TAKE_DATA: Final = frozenset(
    ("tune", "submit", "up", "jobs", "show", "watch", "resume", "models", "schedules")
)
AUTO: Final = "as many trials as are worth it"
NOW_SEC: Final = 15.0  # devices and workers are seen every few seconds


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table: its heading, and a function from a row to the cell's value."""

    heading: str
    of: Callable[[T], Cell]
    cut: bool = False  # cut cells that are too wide instead of wrapping them


def cell(value: Cell) -> str:
    """Format a cell: `-` for None, and floats with four significant digits."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def first_line(text: str) -> str:
    """Return the first line of a message; the others hold hints or compiler output."""
    return text.strip().partition("\n")[0]


def short_name(name: str) -> str:
    """Shorten a name to the 200 characters that the service allows; cut out its middle."""
    if len(name) <= NAME_LENGTH:
        return name
    half = (NAME_LENGTH - len(CUT)) // 2
    return f"{name[:half]}{CUT}{name[-half:]}"


def file_name(name: str, ending: str) -> str:
    """Return `name` plus `ending`, with the name cut if both are too long for a file name."""
    stem, limit = os.fsencode(short_name(name)), FILE_NAME_BYTES - len(os.fsencode(ending))
    return (os.fsdecode(stem) if len(stem) <= limit else stem[:limit].decode(errors="ignore")) + ending


def insert_option(hint: str, option: str) -> str:
    """Insert an option such as `--data` after a hint's command if it accepts them."""
    command, gap, remark = hint.partition("   ")
    subcommand = command.split()[:2]
    takes_data = subcommand[:1] == ["mallorn"] and subcommand[-1] in TAKE_DATA
    return f"{command}{option}{gap}{remark}" if takes_data else hint


def format_duration(seconds: float) -> str:
    """Format seconds: `75.2` as `1:15`, and with hours as `1:01:15`."""
    minutes, seconds_left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"


def format_age(seconds: float) -> str:
    """Format an age in seconds: `75.2` as `1:15 ago`, and below NOW_SEC as `now`."""
    return "now" if seconds < NOW_SEC else f"{format_duration(seconds)} ago"


def format_moment(at_sec: float) -> str:
    """Format seconds since the epoch as date and minute in UTC."""
    return datetime.fromtimestamp(at_sec, UTC).strftime("%Y-%m-%d %H:%M")


def format_latency(value_us: float | None) -> str:
    """Format microseconds in us, or in ms from 1000 us on; `-` for None."""
    if value_us is None:
        return "-"
    return f"{value_us / 1000:.3f} ms" if value_us >= 1000 else f"{value_us:.1f} us"


def describe_budget(job: JobStatus) -> str:
    """Return a job's budget as text, such as `200 trials`; its mode if it does not search."""
    if not job.options.needs_measurements:
        return job.options.mode
    if job.has_auto_budget:
        return AUTO
    limits = {"trials": job.trials, "minutes": job.minutes}
    return " or ".join(f"{value:g} {unit}" for unit, value in limits.items() if value is not None)


def format_spent_trials(job: JobStatus, separator: str = " of ") -> str:
    """Return trials spent and budgeted, as `16 of 200`; `16` if the budget has no trials."""
    trials = job.progress.trials
    return str(trials) if job.trials is None else f"{trials}{separator}{job.trials}"


def describe_headroom(job: JobStatus) -> str:
    """Return a text on the tasks' latency: now, at the hardware limit, and as forecast."""
    outlook = job.outlook
    if outlook is None:
        return ""
    texts = [f"{format_latency(outlook.current_us)} now"]
    if outlook.limit_us is not None and outlook.limit_share is not None:
        limit, share = format_latency(outlook.limit_us), percent(outlook.limit_share)
        texts.append(f"this machine takes at least {limit} ({share} reached)")
    if outlook.trials and not job.state.is_final:
        end = format_latency(outlook.expected_us)
        texts.append(f"about {end} expected after some {outlook.trials:,} more trials")
    return "; ".join([*texts, outlook.gain_text] if outlook.gain_text else texts)
