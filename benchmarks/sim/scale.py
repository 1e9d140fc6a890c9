"""The planner under load: what a decision takes among many jobs and devices, and what memory does."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import psutil

from benchmarks.sim.crowd import Crowd, Load

MEMORY_SAMPLES: Final = 20


@dataclass(frozen=True)
class Strain:
    """What it took."""

    decision_ms: tuple[float, ...]
    turn_ms: tuple[float, ...]  # of which it took to see whose turn it was
    rss_mib: tuple[float, ...]  # at even distances
    jobs_finished: int

    def percentile_ms(self, percent: float) -> float:
        return float(np.percentile(self.decision_ms, percent))

    @property
    def growth(self) -> float:
        """Memory at the end over memory after a fifth of the decisions, when all is warm."""
        return self.rss_mib[-1] / self.rss_mib[len(self.rss_mib) // 5]


def measure(load: Load, policy: str) -> Strain:
    """Make that many decisions."""
    crowd = Crowd(load, policy)
    rss = list(_rss_while_deciding(crowd, load))
    count = load.decisions
    times = tuple(crowd.decision_ms[:count]), tuple(crowd.turn_ms[:count])
    return Strain(*times, tuple(rss), crowd.finished)


def _rss_while_deciding(crowd: Crowd, load: Load) -> Iterator[float]:
    process = psutil.Process()
    for sample in range(1, MEMORY_SAMPLES + 1):
        while len(crowd.decision_ms) < load.decisions * sample // MEMORY_SAMPLES:
            crowd.step()
        yield process.memory_info().rss / 2**20
