"""Table and headline of the benchmark of 8-bit networks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.oracle.gaps import geometric

FLOAT, INT8 = "float32", "int8"  # ours
RIVAL_FLOAT, RIVAL = "onnxruntime-float32", "onnxruntime"
AHEAD: Final = 0.9  # share of the best rival's latency that counts as ahead


@dataclass(frozen=True, slots=True)
class Cell:
    """Figures of a network and thread count: median latency in us, and error, by engine."""

    name: str
    threads: int
    latency_us: Mapping[str, float]
    errors: Mapping[str, float]

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Cell":
        latency = {name: float(times["median"]) for name, times in stored["latency_us"].items()}
        return cls(stored["model"], stored["threads"], latency, stored["errors"])

    @property
    def gain(self) -> float:
        """Latency of our float32 over that of our int8."""
        return self.latency_us[FLOAT] / self.latency_us[INT8]

    @property
    def best_rival(self) -> str:
        """Name of the fastest other engine on the quantised file."""
        others = (name for name in self.latency_us if name not in (FLOAT, INT8, RIVAL_FLOAT))
        return min(others, key=lambda name: self.latency_us[name])

    @property
    def over_rival(self) -> float:
        return self.latency_us[INT8] / self.latency_us[self.best_rival]


def table(cells: Sequence[Cell]) -> str:
    """Return one row per cell, then a headline per number of threads."""
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
    """Return gain, ratio to the best rival, and networks a tenth ahead, per thread count."""
    return [
        f"{count} threads: gain {_mean(cell.gain for cell in selected):.2f}, over the best rival "
        f"{_mean(cell.over_rival for cell in selected):.2f}, ahead by a tenth on "
        f"{sum(cell.over_rival <= AHEAD for cell in selected)} of {len(selected)}"
        for count in sorted({cell.threads for cell in cells})
        if (selected := [cell for cell in cells if cell.threads == count])
    ]


def _mean(values: Iterable[float]) -> float:
    return float(geometric(values))


def _row(cell: Cell, engines: Sequence[str]) -> str:
    times = [f"{cell.latency_us[name] / 1e3:.2f}" if name in cell.latency_us else "" for name in engines]
    errors = [f"{cell.errors[name]:.1e}" for name in (INT8, cell.best_rival)]
    ratios = [f"{cell.gain:.2f}", f"{cell.over_rival:.2f} ({cell.best_rival})"]
    return "| " + " | ".join([cell.name, str(cell.threads), *times, *ratios, *errors]) + " |"
