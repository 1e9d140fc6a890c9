"""Read logs line by line and report lines that cannot be read; shared by all log readers."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from mallorn.core.storable_json import check_storable, quote_untrusted
from mallorn.workers.interfaces.model_compiler import BadLine

FAILED_SEC: Final = 1e9  # times above are failures: both tuners write 1e10 s
# Raised by lines that are truncated, nested too deep, or of another structure.
BAD: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
Value = TypeVar("Value")


Report = Callable[[BadLine], None]


@dataclass(slots=True)
class LoadedLog:
    """Counts of a log's records: newly stored, and stored before."""

    added: int = 0
    known: int = 0
    kept: int = 0  # of those added, stored as raw log records

    def add(self, other: "LoadedLog") -> None:
        self.added, self.known = self.added + other.added, self.known + other.known
        self.kept += other.kept


def read_lines(path: Path, parse: Callable[[Any], Value], report: Report) -> Iterator[tuple[int, Value]]:
    """Yield number (from 0) and value of every line that `parse` accepts; report the others.

    Skips empty lines and comments, which start with `#` or a blank.
    """
    with path.open(errors="replace") as lines:
        for number, line in enumerate(lines):
            if not line.strip() or line[0] in "# ":
                continue
            try:
                value = parse(json.loads(line))
            except RecursionError:
                report(BadLine(str(path), number + 1, "the line is nested too deeply"))
            except BAD as error:
                reason = quote_untrusted(str(error).partition("\n")[0]) or type(error).__name__
                report(BadLine(str(path), number + 1, f"the line is not a measure record: {reason}"))
            else:
                yield number, value


def run_times_us(seconds: Iterable[Any]) -> tuple[float, ...]:
    """Convert run times to us; empty if the run failed. Raises ValueError if invalid."""
    times = tuple(float(value) for value in seconds)
    if not times:
        raise ValueError("the record has no run times")
    if not all(0 < time < math.inf for time in times):
        raise ValueError(f"run times must be positive and finite, not {min(times)!r} to {max(times)!r}")
    return () if max(times) >= FAILED_SEC else tuple(time * 1e6 for time in times)


def require_text(value: Any, field: str) -> str:
    """Return a field's value. Raises TypeError if no string, ValueError if not storable."""
    if not isinstance(value, str):
        raise TypeError(f"the {field} is {quote_untrusted(value)}, but must be a string")
    check_storable(value)
    return value


def hash_program(line: Any) -> str:
    """Hash the program's bytes, as the structural hash in logs differs between platforms."""
    _, program = line
    return hashlib.sha256(require_text(program, "program").encode()).hexdigest()
