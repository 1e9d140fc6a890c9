"""Values as people read them: on a terminal, in a report, in a notebook."""

from typing import Any, Final

NOW_SEC: Final = 15.0  # devices and workers are seen every few seconds


def cell(value: Any) -> str:
    """A value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def first_line(text: str) -> str:
    """What happened; what to do about it, or a compiler's whole story, follows on the other lines."""
    return text.strip().partition("\n")[0]


def duration(seconds: float) -> str:
    """`75.2` as `1:15`, from an hour on `1:01:15`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def ago(seconds: float) -> str:
    """`75.2` as `1:15 ago`; what was a moment ago is `now`."""
    return "now" if seconds < NOW_SEC else f"{duration(seconds)} ago"


def latency(value_us: float | None) -> str:
    """Microseconds with a unit that keeps three digits readable."""
    if value_us is None:
        return "-"
    return f"{value_us / 1000:.3f} ms" if value_us >= 1000 else f"{value_us:.1f} us"
