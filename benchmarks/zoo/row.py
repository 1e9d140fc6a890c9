"""What one job on one network of the zoo came to, and the table of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.oracle.gaps import geometric

RIGHT: Final = (
    1e-2  # the largest error beside onnxruntime, of the largest number: float16 networks are among them
)
BEHIND: Final = 1.2


@dataclass(frozen=True, slots=True)
class Row:
    """A network with so many trials; what was not reached is None."""

    name: str
    trials: int
    refused: str = ""
    nodes: int = 0
    tasks: int = 0
    import_sec: float | None = None
    finish_sec: float | None = None
    total_sec: float | None = None
    error: float | None = None
    ours_us: float | None = None
    onnxruntime_us: float | None = None
    is_steady: bool = True
    not_done: Sequence[str] = ()

    @property
    def is_right(self) -> bool:
        return self.error is not None and self.error <= RIGHT

    @property
    def ratio(self) -> float | None:
        """Ours over onnxruntime's."""
        if self.ours_us is None or self.onnxruntime_us is None:
            return None
        return self.ours_us / self.onnxruntime_us

    @property
    def markdown(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}" + ("" if self.is_steady else " ~")
        error = "" if self.error is None else f"{self.error:.0e}"
        seconds = [self.import_sec, self.total_sec]
        told = ["" if each is None else f"{each:.0f}" for each in seconds]
        cells = [self.name, str(self.nodes or ""), str(self.tasks or ""), *told, error, ratio, self.refused]
        return "| " + " | ".join(cells) + " |"


def table(rows: Sequence[Row]) -> str:
    """All rows, and under them the score."""
    head = "| network | nodes | tasks | import, s | job, s | error | over onnxruntime | |\n|" + 8 * "---|"
    return "\n".join(
        [head, *(row.markdown for row in sorted(rows, key=lambda row: row.name)), "", score(rows)]
    )


def score(rows: Sequence[Row]) -> str:
    """How many come in and are right, and how their latencies compare."""
    right = sum(row.is_right for row in rows)
    ratios = [row.ratio for row in rows if row.ratio is not None]
    timed = (
        f"; over onnxruntime {geometric(ratios):.2f} (geometric mean of {len(ratios)}), "
        f"{sum(ratio > BEHIND for ratio in ratios)} over {BEHIND}"
        if ratios
        else ""
    )
    return f"{right} of {len(rows)} come in and are right{timed}"
