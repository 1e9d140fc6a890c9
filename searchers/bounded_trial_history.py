"""Selects a bounded part of the history, so that late rounds do not take longer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mallorn.costmodels.base import Column
from mallorn.searchers.base import Trial
from mallorn.searchers.space import Candidate


@dataclass(frozen=True)
class TimedCandidates:
    """Timed candidates, with log(latency / best latency) for each."""

    candidates: list[Candidate]
    slowdown: Column

    def __len__(self) -> int:
        return len(self.candidates)

    def draw(self, rng: np.random.Generator, count: int, temperature: float) -> list[Candidate]:
        """Draw candidates with replacement; at low temperature, mostly fast ones."""
        if not self.candidates:
            return []
        heat = np.exp(-self.slowdown / temperature)
        lines = rng.choice(len(self), size=count, p=heat / heat.sum())
        return [self.candidates[index] for index in lines]


def fastest(history: Sequence[Trial], count: int) -> TimedCandidates:
    """Return the fastest `count` candidates of the history that have a time."""
    return _timed(sorted(history, key=lambda trial: trial.time_us or np.inf)[:count], history)


def latest(history: Sequence[Trial], count: int) -> TimedCandidates:
    """Return the timed candidates among the last `count` trials, oldest first. Their
    slowdown is relative to the best of the entire history."""
    return _timed(history[max(0, len(history) - count) :], history)


def _timed(trials: Sequence[Trial], history: Sequence[Trial]) -> TimedCandidates:
    best = min((trial.time_us for trial in history if trial.time_us is not None), default=np.inf)
    pairs = [(trial.candidate, trial.time_us) for trial in trials if trial.time_us is not None]
    times = np.array([time_us for _, time_us in pairs], dtype=np.float64)
    return TimedCandidates([candidate for candidate, _ in pairs], np.log(times / best))
