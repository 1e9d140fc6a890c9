"""Bayesian optimisation: a Gaussian process on this task's times, with three acquisition functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from costmodels.base import Column
from searchers.algorithms.arm_credit import credit
from searchers.algorithms.gaussian_process import ACQUISITIONS, Beliefs, GaussianProcess
from searchers.base import Proposal, Trial, means_of
from searchers.batch_sampler import ScoredPool
from searchers.batch_searcher import BatchSearcher, Request
from searchers.bounded_trial_history import fastest
from searchers.failure_and_build_time_penalty import penalise_failures
from searchers.feature_scaling import scaled
from searchers.fill_batch import Filter
from searchers.pooled_searcher import score
from searchers.space import Candidate

ROWS: Final = 192  # what the process is fitted to, whatever the history's length
FEWEST: Final = 8  # timed trials; with fewer there is nothing to fit


@dataclass(eq=False, kw_only=True)
class BayesianOptimisation(BatchSearcher):
    """Expected improvement, its probability and the confidence bound share a batch by earned credit.

    The pool is mutations of the best and random candidates; a cost model, if there is one, only halves it.
    Each choice is believed before the next is made (kriging believer), so a batch spreads. No sampler is
    used.
    """

    considered: int = 4096
    kept: int = 2048
    elite: int = 48

    def choose(self, asked: Request, sieve: Filter) -> list[Proposal]:
        timed = [trial for trial in asked.history if trial.time_us is not None]
        if len(timed) < FEWEST:
            return []
        pool = self._pool(asked, sieve)
        return self._by_acquisition(asked, timed, pool, sieve) if len(pool) else []

    def _pool(self, asked: Request, sieve: Filter) -> ScoredPool:
        space, rng = asked.space, asked.rng
        elite = fastest(asked.history, self.elite).candidates
        half = self.considered // 2
        parents = [elite[at] for at in rng.integers(len(elite), size=half)]
        near = space.mutate_all(rng, parents)
        far = space.mutate_all(rng, near[: half // 2])
        strangers = space.sample(rng, half - len(far))
        pool = score(space, asked.model, sieve.fresh([*near, *far, *strangers]))
        pool = penalise_failures(space, asked.history, pool, rng)
        order = rng.permutation(len(pool))
        ranked = order[np.argsort(-pool.prediction.mean[order], kind="stable")]
        return pool.without(ranked[self.kept :])

    def _by_acquisition(
        self, asked: Request, timed: Sequence[Trial], pool: ScoredPool, sieve: Filter
    ) -> list[Proposal]:
        rows = spread(timed, ROWS)
        seen = asked.space.features([trial.candidate for trial in rows])
        points = scaled(np.vstack([seen, pool.features]))
        targets = np.log([_time_us(trial) for trial in rows])
        process = GaussianProcess.fit(points[: len(rows)], targets)
        beliefs = process.beliefs(points[len(rows) :])
        shares = credit(asked.history, tuple(ACQUISITIONS), means_of).shares(0.15, 0.15, 0.15)
        turns = asked.rng.choice(tuple(ACQUISITIONS), size=4 * asked.count, p=shares / shares.sum())
        return _batch(beliefs, targets, pool.candidates, turns.tolist(), sieve, asked.count)


def _batch(
    beliefs: Beliefs,
    targets: Column,
    candidates: Sequence[Candidate],
    asked: Sequence[str],
    sieve: Filter,
    count: int,
) -> list[Proposal]:
    """Pick and check as many as are missing, until the batch is full."""
    picks = _picks(beliefs, targets, asked)
    batch: list[Proposal] = []
    while picked := list(islice(picks, count - len(batch))):
        valid = set(sieve.valid(candidates[at] for at, _ in picked))
        gain = targets.min() - beliefs.mean
        batch += [
            Proposal(candidates[at], float(gain[at]), name) for at, name in picked if candidates[at] in valid
        ]
    return batch


def _picks(beliefs: Beliefs, targets: Column, asked: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Choose lines one by one, each the best by the function whose turn it is."""
    best = float(targets.min())
    exploration = contextual_variance(beliefs.std, targets)
    open_ones = np.ones(len(beliefs.mean), dtype=np.bool_)
    for name in asked[: len(open_ones)]:
        worth = ACQUISITIONS[name](beliefs.mean, beliefs.std, best, exploration)
        at = int(np.where(open_ones, worth, -np.inf).argmax())
        open_ones[at] = False
        beliefs.believe(at)
        yield at, name


def contextual_variance(std: Column, targets: Column) -> float:
    """Kernel Tuner's exploration factor: lower if the process is certain or the best is far ahead."""
    sure = float(std.mean()) / max(1e-9, float(targets.std()))
    ahead = float(np.exp(targets.min() - targets.mean()))
    return min(1.0, sure * ahead)


def spread(timed: Sequence[Trial], count: int) -> list[Trial]:
    """At most `count` rows, oldest first: the fastest, the newest, and some from the whole history."""
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
