"""Failures and long builds teach: such candidates become rare, and never impossible."""

from dataclasses import replace

import numpy as np
import pytest

from mallorn.core.outcomes import Outcome
from mallorn.costmodels.base import Prediction
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn.searchers.algorithms.evolutionary import Evolutionary
from mallorn.searchers.base import Trial
from mallorn.searchers.failure_and_build_time_penalty import (
    CERTAIN,
    failure_probability,
    learn_build_times,
    learn_feasibility,
    penalise_failures,
)
from mallorn.searchers.sampler import ScoredPool
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import SyntheticSpace, simulate
from mallorn.searchers.testing import generator


class Harsh(SyntheticSpace):
    """Large register tiles crash: a quarter of what is drawn at random."""

    def measure(self, candidate: Candidate) -> Trial:
        crashes = crashing(candidate)
        return Trial(candidate, Outcome.RUN_ERROR, None) if crashes else super().measure(candidate)


def crashing(candidate: Candidate) -> bool:
    return candidate.decisions[3] * candidate.decisions[7] > 128


def drawn(space: SyntheticSpace, count: int, seed: int) -> list[Candidate]:
    candidates = dict.fromkeys(space.sample(generator(seed), count))
    return [c for c, good in zip(candidates, space.valid(list(candidates)), strict=True) if good]


def learned(trials: int) -> tuple[Harsh, list[Trial]]:
    space = Harsh(128, 128, 128)
    return space, [space.measure(candidate) for candidate in drawn(space, trials, 0)]


def test_a_failing_region_is_recognised() -> None:
    space, history = learned(200)
    feasibility = learn_feasibility(space, history)
    assert feasibility is not None
    others = drawn(space, 300, 1)
    failing = failure_probability(feasibility, space.features(others))
    crash = np.array([crashing(candidate) for candidate in others])
    assert failing[crash].mean() > 0.7
    assert failing[~crash].mean() < 0.1
    assert failing.max() <= CERTAIN


def test_few_failures_or_nothing_else_teach_nothing() -> None:
    space, history = learned(60)
    good = [trial for trial in history if not trial.outcome.failed]
    bad = [trial for trial in history if trial.outcome.failed]
    assert learn_feasibility(space, [*good, *bad[:3]]) is None
    assert learn_feasibility(space, bad) is None
    lost = [replace(trial, outcome=Outcome.WORKER_LOST) for trial in bad]
    assert learn_feasibility(space, [*good, *lost]) is None


def pool_of(space: SyntheticSpace, candidates: list[Candidate]) -> ScoredPool:
    alike = np.zeros(len(candidates), dtype=np.float32)
    return ScoredPool(candidates, space.features(candidates), Prediction(alike, alike))


def test_what_probably_fails_becomes_rare_in_the_pool() -> None:
    space, history = learned(200)
    others = drawn(space, 600, 1)
    pools = [penalise_failures(space, history, pool_of(space, others), generator(seed)) for seed in range(10)]
    kept = [candidate for pool in pools for candidate in pool.candidates]
    bad, bad_kept = 10 * sum(map(crashing, others)), sum(map(crashing, kept))
    good, good_kept = 10 * len(others) - bad, len(kept) - bad_kept
    assert 0 < bad_kept < 0.2 * bad
    assert good_kept > 0.8 * good


def test_a_history_without_failures_changes_nothing() -> None:
    space = SyntheticSpace(64, 64, 64)
    pool = pool_of(space, drawn(space, 50, 0))
    same = penalise_failures(space, [], pool, generator(0))
    assert list(same.candidates) == list(pool.candidates)
    np.testing.assert_array_equal(same.prediction.mean, pool.prediction.mean)


def test_only_outliers_pay_for_their_build() -> None:
    space = SyntheticSpace(64, 64, 64)
    others = drawn(space, 300, 0)
    unrolls = np.array([candidate.decisions[10] == 3 for candidate in others])
    history = [
        Trial(c, Outcome.OK, 5.0, build_ms=20_000.0 if slow else 500.0)
        for c, slow in zip(others[:200], unrolls, strict=False)
    ]
    times = learn_build_times(space, history)
    assert times is not None
    pool = pool_of(space, others[200:])
    slow = unrolls[200:]
    excess = times.predict_log_excess(pool.features)
    assert np.quantile(excess[slow], 0.1) > np.quantile(excess[~slow], 0.9)
    price = -penalise_failures(space, history, pool, generator(0)).prediction.mean
    assert np.median(price[~slow]) == 0.0
    assert np.median(price[slow]) > 0.1


def test_few_builds_teach_nothing() -> None:
    space, history = learned(60)
    assert learn_build_times(space, [replace(trial, build_ms=None) for trial in history]) is None


@pytest.mark.slow
def test_after_200_trials_hardly_anything_fails() -> None:
    space = Harsh(256, 256, 256)
    history = simulate(space, Evolutionary(), XGBoost, trials=328, round_size=32, seed=0)
    late = [trial.outcome.failed for trial in history[200:]]
    assert np.mean([trial.outcome.failed for trial in history[:32]]) > 0.05
    assert np.mean(late) < 0.02
