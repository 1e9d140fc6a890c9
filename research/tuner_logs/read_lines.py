"""What all readers of logs share: they read line by line and report lines that cannot be read."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from mallorn.core.storable_json import check_storable, told

FAILED_SEC: Final = 1e9  # both tuners write 1e10 seconds for a candidate that was never timed
# What a line raises that is torn, nested without end, or not what its place in the log should hold.
BAD: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that was left out."""

    file: str
    line: int  # from 1
    error: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.error}"


Report = Callable[[Problem], None]


@dataclass(slots=True)
class LoadedLog:
    """How many records were new, stored before, or unreadable."""

    added: int = 0
    known: int = 0
    bad: int = 0
    kept: int = 0  # of those added, as the log has them: nothing here can rebuild them


def read_lines(path: Path, parse: Callable[[Any], Value], report: Report) -> Iterator[tuple[int, Value]]:
    """The number, from 0, and value of every line that `parse` takes; the others are reported.

    Comments (`#`, or a leading blank) and empty lines are passed over.
    """
    with path.open(errors="replace") as lines:
        for number, line in enumerate(lines):
            if not line.strip() or line[0] in "# ":
                continue
            try:
                value = parse(json.loads(line))
            except BAD as error:
                report(Problem(str(path), number + 1, _words(error)))
            else:
                yield number, value


def run_times_us(seconds: Iterable[Any]) -> tuple[float, ...]:
    """Run times in microseconds; none for a candidate that failed. Raises ValueError for what is no time."""
    times = tuple(float(value) for value in seconds)
    if not times:
        raise ValueError("no run times")
    if not all(0 < time < math.inf for time in times):
        raise ValueError(f"a run time that is none: {min(times)!r}, {max(times)!r}")
    return () if max(times) >= FAILED_SEC else tuple(time * 1e6 for time in times)


def text(value: Any) -> str:
    """A text that both databases can store. Raises TypeError or ValueError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{told(value)} where a text should be")
    check_storable(value)
    return value


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    said = told(str(error).partition("\n")[0])
    return f"no record: {said or type(error).__name__}"
