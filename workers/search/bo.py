"""Bayesian optimisation: a Gaussian process of this task's own times, and three ways to ask it."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costmodels.base import CostModel
from workers.search.acquisition import ACQUISITIONS
from workers.search.base import Proposal, Searcher, Trial
from workers.search.credit import credit
from workers.search.fill import Filter, random_fill, take
from workers.search.gp import Beliefs, GaussianProcess
from workers.search.measured import fastest
from workers.search.origins import DEFAULT, means_of
from workers.search.pooled import score
from workers.search.prudence import prudent
from workers.search.sampler import BatchSampler, ScoredPool
from workers.search.scaling import scaled
from workers.search.space import Candidate, Space

Column = NDArray[np.float64]

ROWS: Final = 192  # what the process is fitted to, whatever the history's length
FEWEST: Final = 8  # timed trials; with fewer there is nothing to fit


class BayesianOptimisation(Searcher):
    """Expected improvement, its probability and the confidence bound share a batch by the credit they earned.

    The pool is mutations of the best and random candidates; a cost model, where there is one, only sorts out
    half of it. Each choice is believed before the next is made, so that a batch does not crowd one place.
    """

    def __init__(
        self,
        sampler: BatchSampler | None = None,
        *,
        considered: int = 4096,
        kept: int = 2048,
        elite: int = 48,
        random_share: float = 0.05,
    ) -> None:
        del sampler  # a batch is chosen by acquisition
        self.considered = considered
        self.kept = kept
        self.elite = elite
        self.random_share = random_share

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        sieve = Filter(space, history)
        batch = [] if history else take(sieve, space.defaults(), count, DEFAULT)
        timed = [trial for trial in history if trial.time_us is not None]
        wanted = count - len(batch) - int(rng.binomial(count - len(batch), self.random_share))
        if wanted and len(timed) >= FEWEST:
            pool = self._pool(space, history, model, sieve, rng)
            batch += self._choose(space, history, timed, pool, sieve, wanted, rng)
        return batch + random_fill(space, sieve, count - len(batch), rng)

    def _pool(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        sieve: Filter,
        rng: np.random.Generator,
    ) -> ScoredPool:
        elite = fastest(history, self.elite).candidates
        half = self.considered // 2
        parents = [elite[at] for at in rng.integers(len(elite), size=half)]
        near = space.mutate_all(rng, parents)
        far = space.mutate_all(rng, near[: half // 2])
        strangers = space.sample(rng, half - len(far))
        pool = score(space, model, sieve.fresh([*near, *far, *strangers]))
        pool = prudent(space, history, pool, rng)
        order = rng.permutation(len(pool))
        ranked = order[np.argsort(-pool.prediction.mean[order], kind="stable")]
        return pool.without(ranked[self.kept :])

    def _choose(
        self,
        space: Space,
        history: Sequence[Trial],
        timed: Sequence[Trial],
        pool: ScoredPool,
        sieve: Filter,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        if not len(pool):
            return []
        rows = spread(timed, ROWS)
        seen = space.features([trial.candidate for trial in rows])
        points = scaled(np.vstack([seen, pool.features]))
        targets = np.log([_time_us(trial) for trial in rows])
        process = GaussianProcess.fit(points[: len(rows)], targets)
        beliefs = process.beliefs(points[len(rows) :])
        shares = credit(history, tuple(ACQUISITIONS), means_of).shares(0.15, 0.15, 0.15)
        asked = rng.choice(tuple(ACQUISITIONS), size=4 * count, p=shares / shares.sum())
        return _batch(beliefs, targets, pool.candidates, asked.tolist(), sieve, count)


def _batch(
    beliefs: Beliefs,
    targets: Column,
    candidates: Sequence[Candidate],
    asked: Sequence[str],
    sieve: Filter,
    count: int,
) -> list[Proposal]:
    """One candidate after the other, each the best by the measure whose turn it is."""
    best = float(targets.min())
    exploration = contextual_variance(beliefs.std, targets)
    open_ones = np.ones(len(candidates), dtype=np.bool_)
    batch: list[Proposal] = []
    for name in asked:
        if len(batch) == count or not open_ones.any():
            break
        worth = ACQUISITIONS[name](beliefs.mean, beliefs.std, best, exploration)
        at = int(np.where(open_ones, worth, -np.inf).argmax())
        open_ones[at] = False
        if sieve.valid([candidates[at]]):
            batch.append(Proposal(candidates[at], best - float(beliefs.mean[at]), name))
            beliefs.believe(at)
    return batch


def contextual_variance(std: Column, targets: Column) -> float:
    """Kernel Tuner's: less exploration where the process is sure, and where the best is far ahead already."""
    sure = float(std.mean()) / max(1e-9, float(targets.std()))
    ahead = float(np.exp(targets.min() - targets.mean()))
    return min(1.0, sure * ahead)


def spread(timed: Sequence[Trial], count: int) -> list[Trial]:
    """At most `count`: the fastest, the newest, and some from all over the history, oldest first."""
    if len(timed) <= count:
        return list(timed)
    third = count // 3
    order = sorted(range(len(timed)), key=lambda at: _time_us(timed[at]))
    kept = set(order[:third]) | set(range(len(timed) - third, len(timed)))
    others = [at for at in range(len(timed)) if at not in kept]
    picked = np.linspace(0, len(others) - 1, count - len(kept)).round().astype(int)
    return [timed[at] for at in sorted(kept | {others[at] for at in picked})]


def _time_us(trial: Trial) -> float:
    return float(trial.time_us or np.inf)
