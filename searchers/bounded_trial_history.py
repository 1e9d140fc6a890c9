"""Selects a bounded part of the history, so that late rounds do not take longer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mallorn.costmodels.base import Column, Indices
from mallorn.searchers.base import Trial
from mallorn.searchers.space import Candidate


@dataclass(frozen=True)
class TimedCandidates:
    """Timed candidates, with log(latency / best latency) for each."""

    candidates: list[Candidate]
    slowdown: Column

    def __len__(self) -> int:
        return len(self.candidates)

    def boltzmann_weights(self, temperature: float) -> Column:
        """Return Boltzmann weights, which are nearly equal at high temperature."""
        heat = np.exp(-self.slowdown / temperature)
        return np.asarray(heat / heat.sum())

    def draw(self, rng: np.random.Generator, count: int, temperature: float) -> list[Candidate]:
        """Draw candidates with replacement; at low temperature, mostly fast ones."""
        if not self.candidates:
            return []
        lines = rng.choice(len(self), size=count, p=self.boltzmann_weights(temperature))
        return [self.candidates[index] for index in lines]


def fastest(history: Sequence[Trial], count: int) -> TimedCandidates:
    """Return the fastest `count` candidates of the history that have a time."""
    lines, latencies = _timed(history)
    order = np.argsort(latencies, kind="stable")[:count]
    return _make_timed_candidates(history, lines[order], latencies[order], latencies)


def latest(history: Sequence[Trial], count: int) -> TimedCandidates:
    """Return the timed candidates among the last `count` trials, oldest first. Their
    slowdown is relative to the best of the entire history."""
    lines, latencies = _timed(history)
    recent = lines >= len(history) - count
    return _make_timed_candidates(history, lines[recent], latencies[recent], latencies)


def _timed(history: Sequence[Trial]) -> tuple[Indices, Column]:
    times = [(index, trial.time_us) for index, trial in enumerate(history) if trial.time_us is not None]
    lines = np.array([index for index, _ in times], dtype=np.int64)
    return lines, np.array([latency for _, latency in times], dtype=np.float64)


def _make_timed_candidates(
    history: Sequence[Trial], lines: Indices, latencies: Column, all_latencies: Column
) -> TimedCandidates:
    best = all_latencies.min(initial=np.inf)
    return TimedCandidates([history[index].candidate for index in lines], np.log(latencies / best))
