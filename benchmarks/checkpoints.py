"""What a raw cell says of a run: the latency of whole models after so many of its trials.

A cell's `latency_us` names an engine `ARM@TRIALS`, or `ARM` for what the arm ended with.
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean
from typing import Any

Raw = Mapping[str, Any]


def latency_us(cell: Raw, name: str) -> float:
    return float(cell["latency_us"][name]["median"])


def curve(cell: Raw, arm: str) -> list[tuple[int, float]]:
    """Trials and latency at an arm's checkpoints, in order."""
    points = [name.partition("@") for name in cell["latency_us"] if name.startswith(f"{arm}@")]
    return sorted((int(count), latency_us(cell, f"{arm}@{count}")) for _, _, count in points)


def first_within(curve: Sequence[tuple[int, float]], goal_us: float) -> int | None:
    """The trials of the first checkpoint that reaches a goal."""
    return next((trials for trials, reached_us in curve if reached_us <= goal_us), None)


def geometric_mean(values: Sequence[float]) -> float:
    return exp(fmean(map(log, values)))
