"""What networks in 8 bits come to: the table of cells, and its headline."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.oracle.gaps import geometric

FLOAT, INT8 = "float32", "int8"  # ours
RIVAL_FLOAT, RIVAL = "onnxruntime-float32", "onnxruntime"
AHEAD: Final = 0.9  # of the best rival's latency


@dataclass(frozen=True, slots=True)
class Cell:
    """A network on so many threads: medians in microseconds and errors, by engine."""

    name: str
    threads: int
    latency_us: Mapping[str, float]
    errors: Mapping[str, float]

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Cell":
        latency = {name: float(found["median"]) for name, found in stored["latency_us"].items()}
        return cls(stored["model"], stored["threads"], latency, stored["errors"])

    @property
    def gain(self) -> float:
        """Our float32 over our int8."""
        return self.latency_us[FLOAT] / self.latency_us[INT8]

    @property
    def best_rival(self) -> str:
        """The fastest other engine on the quantised file."""
        others = (name for name in self.latency_us if name not in (FLOAT, INT8, RIVAL_FLOAT))
        return min(others, key=lambda name: self.latency_us[name])

    @property
    def over_rival(self) -> float:
        return self.latency_us[INT8] / self.latency_us[self.best_rival]


def table(cells: Sequence[Cell]) -> str:
    """A row each, and under them the headline of each number of threads."""
    engines = list(dict.fromkeys(name for cell in cells for name in cell.latency_us))
    head = [
        "network",
        "threads",
        *(f"{name}, ms" for name in engines),
        "gain",
        "over the best rival",
        "error",
        "theirs",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += [_row(cell, engines) for cell in cells]
    return "\n".join([*lines, "", *headlines(cells)])


def headlines(cells: Sequence[Cell]) -> list[str]:
    """The gain, and on how many networks a tenth and more ahead of the best rival."""
    return [
        f"{count} threads: gain {_mean(cell.gain for cell in of):.2f}, over the best rival "
        f"{_mean(cell.over_rival for cell in of):.2f}, ahead by a tenth on "
        f"{sum(cell.over_rival <= AHEAD for cell in of)} of {len(of)}"
        for count in sorted({cell.threads for cell in cells})
        if (of := [cell for cell in cells if cell.threads == count])
    ]


def _mean(values: Iterable[float]) -> float:
    return float(geometric(values))


def _row(cell: Cell, engines: Sequence[str]) -> str:
    times = [f"{cell.latency_us[name] / 1e3:.2f}" if name in cell.latency_us else "" for name in engines]
    errors = [f"{cell.errors[name]:.1e}" for name in (INT8, cell.best_rival)]
    ratios = [f"{cell.gain:.2f}", f"{cell.over_rival:.2f} ({cell.best_rival})"]
    return "| " + " | ".join([cell.name, str(cell.threads), *times, *ratios, *errors]) + " |"
