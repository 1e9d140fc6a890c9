"""A bounded sample of a task's history to learn from, so that the cost does not grow with it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from costmodels.base import Vector
from costmodels.training import bounded_sample, informative, labels
from workers.search.base import Trial
from workers.search.space import Candidate

MOST = 192  # a third newest, a third best, a third random


class HistorySample(NamedTuple):
    """Measured candidates, best first, with log(best latency / latency)."""

    candidates: list[Candidate]
    label: Vector


def sample_of(history: Sequence[Trial], most: int = MOST) -> HistorySample:
    """At most `most` informative measurements, failures included."""
    outcomes = [trial.outcome for trial in history]
    group = np.zeros(len(history), dtype=np.int64)
    label = labels([trial.latency_us for trial in history], group, outcomes)
    telling = np.flatnonzero(informative(outcomes))
    kept = telling[bounded_sample(label[telling], most, seed=len(history))]
    ranked = kept[np.argsort(-label[kept], kind="stable")]
    return HistorySample([history[at].candidate for at in ranked], label[ranked])
