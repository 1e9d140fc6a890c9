"""Read the latency of whole models at a run's checkpoints from a raw cell.

Keys of a cell's `latency_us` are `ARM@TRIALS`, or `ARM` for the end of the run.
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean
from typing import Any

Raw = Mapping[str, Any]


def latency_us(cell: Raw, name: str) -> float:
    return float(cell["latency_us"][name]["median"])


def curve(cell: Raw, arm: str) -> list[tuple[int, float]]:
    """Return trials and latency at an arm's checkpoints, in order of trials."""
    points = [name.partition("@") for name in cell["latency_us"] if name.startswith(f"{arm}@")]
    return sorted((int(count), latency_us(cell, f"{arm}@{count}")) for _, _, count in points)


def first_within(curve: Sequence[tuple[int, float]], goal_us: float) -> int | None:
    """Return the trials of the first point at or below `goal_us`, or None."""
    return next((trials for trials, reached_us in curve if reached_us <= goal_us), None)


def geometric_mean(values: Sequence[float]) -> float:
    return exp(fmean(map(log, values)))
