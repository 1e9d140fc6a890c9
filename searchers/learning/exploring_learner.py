"""Learner, the base of the learning searchers: a scout explores, and a sample of the history teaches."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from costmodels.base import CostModel, Vector
from costmodels.labels import bounded_sample, informative, labels
from searchers.base import DEFAULT, MEASURED, RANDOM, Proposal, Trial
from searchers.batch_searcher import Request
from searchers.fill_batch import Filter
from searchers.learning.kernel_regression import KernelRegression
from searchers.learning.scorer import Scorer
from searchers.pooled_searcher import PooledSearcher
from searchers.space import Candidate, Space

MOST = 192  # a third newest, a third best, a third random


class HistorySample(NamedTuple):
    """Measured candidates, best first, with log(best latency / latency)."""

    candidates: list[Candidate]
    label: Vector


def sample_of(history: Sequence[Trial]) -> HistorySample:
    """At most MOST informative measurements, failures included."""
    outcomes = [trial.outcome for trial in history]
    group = np.zeros(len(history), dtype=np.int64)
    label = labels([trial.latency_us for trial in history], group, outcomes)
    telling = np.flatnonzero(informative(outcomes))
    kept = telling[bounded_sample(label[telling], MOST, seed=len(history))]
    ranked = kept[np.argsort(-label[kept], kind="stable")]
    return HistorySample([history[at].candidate for at in ranked], label[ranked])


@dataclass(eq=False, kw_only=True)
class Learner(PooledSearcher):
    """A PooledSearcher that learns from what it looks at; its pool is all that it saw meanwhile.

    Without a model, kernel regression over the task's measurements prices candidates; without measurements
    the pool is random.
    """

    considered: int = 4096
    optimism: float = 0.5

    @abstractmethod
    def explore(self, scout: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        """Look at about `considered` candidates, increasingly good ones."""

    def choose(self, asked: Request, sieve: Filter) -> list[Proposal]:
        if asked.model is None:
            asked = replace(asked, model=stand_in(asked.space, sample_of(asked.history)))
        return super().choose(asked, sieve)

    def pool(self, asked: Request) -> dict[Candidate, str]:
        space, rng = asked.space, asked.rng
        if asked.model is None:
            return dict.fromkeys(space.sample(rng, asked.count), RANDOM)
        sample = sample_of(asked.history)
        scout = Scorer(space, asked.model, optimism=self.optimism)
        scout.look_at(sample.candidates, MEASURED)
        scout.look_at(space.defaults(), DEFAULT)
        scout.look_at(space.sample(rng, self.considered // 8), RANDOM)
        self.explore(scout, sample, rng)
        return scout.pool()


def stand_in(space: Space, sample: HistorySample) -> CostModel | None:
    """A model of the sample alone; None if it is empty."""
    if not sample.candidates:
        return None
    model = KernelRegression()
    groups = np.zeros(len(sample.candidates), dtype=np.int64)
    model.fit(space.features(sample.candidates), sample.label, groups, seed=0)
    return model
