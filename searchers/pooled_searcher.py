"""Searchers that gather a pool of scored candidates and let a BatchSampler choose from it."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from costmodels.base import FAILED_LABEL, CostModel, Matrix, Prediction
from costmodels.views import DECISIONS
from searchers.base import SYNTHESIS, Proposal
from searchers.batch_sampler import ScoredPool, Synthesiser
from searchers.batch_searcher import BatchSearcher, Request
from searchers.bounded_trial_history import fastest
from searchers.failure_and_build_time_penalty import penalise_failures
from searchers.fill_batch import Filter
from searchers.space import Candidate, Space
from searchers.top_k_sampler import TopK

BESIDE: Final = 128  # of the fastest measured that a sampler which makes up candidates sees


@dataclass(eq=False)
class PooledSearcher(BatchSearcher):
    """A BatchSearcher that gathers a pool and lets its sampler choose from it.

    Subclasses fill the pool; only chosen candidates are checked for validity. Candidates like earlier
    failures are chosen less often.
    """

    @abstractmethod
    def pool(self, asked: Request) -> dict[Candidate, str]:
        """Candidates to score with their origins; measured ones may be among them."""

    def choose(self, asked: Request, sieve: Filter) -> list[Proposal]:
        origins = self.pool(asked)
        scored = score(asked.space, asked.model, sieve.fresh(origins))
        chosen = self._sampled(penalise_failures(asked.space, asked.history, scored, asked.rng), asked, sieve)
        # With the model's own predictions, before penalties.
        made_up = score(asked.space, asked.model, [each for each in chosen if each not in origins])
        known = scored.beside(made_up)
        expected = dict(zip(known.candidates, known.prediction.mean.tolist(), strict=True))
        return [Proposal(each, expected[each], origins.get(each, SYNTHESIS)) for each in chosen]

    def _sampled(self, pool: ScoredPool, asked: Request, sieve: Filter) -> list[Candidate]:
        sampler = self.sampler or TopK()
        chosen: list[Candidate] = []
        if isinstance(sampler, Synthesiser):
            measured = score(asked.space, asked.model, fastest(asked.history, BESIDE).candidates)
            wanted = sampler.compose(asked.space, pool, measured, asked.count, asked.rng)
            chosen = sieve.valid(wanted)[: asked.count]
            asked_about = set(wanted)
            pool = pool.without(np.flatnonzero([each in asked_about for each in pool.candidates]))
        while len(chosen) < asked.count and len(pool):
            lines = sampler.choose(pool, asked.count - len(chosen), asked.rng)
            chosen += sieve.valid([pool.candidates[at] for at in lines])
            pool = pool.without(lines)
        return chosen


def score(space: Space, model: CostModel | None, candidates: Sequence[Candidate]) -> ScoredPool:
    """The model's prediction for each; without a model all are equal."""
    features = space.features(candidates)
    if model is None or not candidates:
        alike = np.zeros(len(candidates), dtype=np.float32)
        return ScoredPool(candidates, features, Prediction(alike, alike))
    if model.view == DECISIONS.name:
        return ScoredPool(candidates, features, model.predict(features))
    seen = space.viewed(model.view, candidates)
    return ScoredPool(candidates, features, _last_if_unknown(seen, model.predict(seen)))


def _last_if_unknown(seen: Matrix, predicted: Prediction) -> Prediction:
    """What cannot be lowered is worse than all others."""
    unknown = np.isnan(seen).all(axis=1)
    worst = predicted.mean.min() + np.float32(FAILED_LABEL)
    return Prediction(np.where(unknown, worst, predicted.mean), predicted.std)
