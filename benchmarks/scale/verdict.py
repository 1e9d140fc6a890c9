"""Names what limits a cell's throughput, and writes its row of the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.scale.sampling import TVM_CHILD

FULL: Final = 0.9  # share of a resource from which on it is the limit
LOCKED: Final = 0.2  # share of their time that workers wait for row locks
CONTROL_FULL: Final = 0.8


@dataclass(frozen=True, slots=True)
class Load:
    """Shares of a cell's resources that were in use, from 0 to 1."""

    devices: float  # their time that candidates took; 0 if candidates take no time
    processors: float
    workers: float  # time within tasks, of all their places
    control: float
    lock_waits: float  # seconds of waiting for row locks, a second and worker
    open_rounds: float  # open rounds for each device


def verdict(load: Load) -> str:
    """Return what limits the throughput: the first cause in order of certainty."""
    if load.devices >= FULL:
        return "devices busy"
    if load.lock_waits >= LOCKED:
        return "lock waits"
    if load.processors >= FULL:
        return "processors full"
    if load.control >= CONTROL_FULL:
        return "control busy"
    if load.open_rounds < 1:
        return "too few open rounds"
    if load.workers >= FULL:
        return "workers all busy"
    return "latency: nothing is full"


COLUMNS: Final = (
    ("devices", "devices", "d"),
    ("sec", "candidate_sec", "g"),
    ("workers", "workers", "d"),
    ("places", "places", "d"),  # rounds that all workers do at a time
    ("cand/s", "candidates_per_sec", ".1f"),
    ("share", "share_of_ideal", ".2f"),
    ("stmts", "statements_per_candidate", ".2f"),
    ("trans", "transactions_per_candidate", ".2f"),
    ("redis", "redis_commands_per_candidate", ".2f"),
    ("lock s", "lock_wait_sec", ".1f"),
    ("conn", "connections", "d"),
    ("idle ms", "idle_median_ms", ".0f"),
    ("p90 ms", "idle_p90_ms", ".0f"),
    ("control", "control_busy", ".2f"),
    ("cpu", "processors_busy", ".2f"),
    ("others", "processors_of_others", ".2f"),  # a share that makes a cell's figures worthless
)
KINDS: Final = ("worker", TVM_CHILD, "control", "coordinator", "postgres")


def table(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the table: a row a cell, with processor milliseconds a candidate by kind."""
    names = [*(name for name, _, _ in COLUMNS), *(f"{kind} ms" for kind in KINDS), "limit"]
    rows = [names]
    for cell in cells:
        words = [_word(cell[key], form) for _, key, form in COLUMNS]
        words += [_word(cell["processor_ms_per_candidate"].get(kind), ".2f") for kind in KINDS]
        rows.append([*words, str(cell["verdict"])])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)) for row in rows]


def _word(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
