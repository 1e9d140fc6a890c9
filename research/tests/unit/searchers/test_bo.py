"""A Gaussian process that interpolates, and a batch that spreads."""

import numpy as np
import pytest

from mallorn.core.outcomes import Outcome
from mallorn.searchers.algorithms.random import RandomSearch
from mallorn.searchers.base import Trial
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import SyntheticSpace, simulate
from mallorn.searchers.testing import generator
from mallorn_research.searchers.bayesian_optimization import (
    ACQUISITIONS,
    ROWS,
    BayesianOptimisation,
    GaussianProcess,
    exploration_factor,
    matern,
    select_spread_trials,
)

GRID = np.linspace(-1, 1, 41)[:, None]
SEEN = GRID[::5]


def fitted() -> GaussianProcess:
    return GaussianProcess.fit(SEEN, 5.0 + np.sin(3 * SEEN[:, 0]))


def test_the_process_passes_near_what_it_saw_and_knows_less_between() -> None:
    posterior = fitted().posterior(GRID)
    np.testing.assert_allclose(posterior.mean[::5], 5.0 + np.sin(3 * SEEN[:, 0]), atol=0.05)
    np.testing.assert_allclose(posterior.mean, 5.0 + np.sin(3 * GRID[:, 0]), atol=0.15)
    assert posterior.std[::5].max() < posterior.std[2::5].min()


def test_believing_is_conditioning_on_the_mean() -> None:
    process = fitted()
    posterior = process.posterior(GRID)
    before, at = posterior.mean.copy(), 12
    posterior.condition_on(at)
    noisy = np.eye(len(SEEN) + 1) * process.noise
    points = np.vstack([SEEN, GRID[at : at + 1]])
    kernel, cross = matern(points, points, process.length) + noisy, matern(points, GRID, process.length)
    variance = 1.0 - (cross * np.linalg.solve(kernel, cross)).sum(axis=0)
    np.testing.assert_allclose(posterior.std, process.scale * np.sqrt(np.maximum(variance, 1e-9)), atol=1e-6)
    np.testing.assert_array_equal(posterior.mean, before)


def test_targets_that_are_all_alike_are_no_obstacle() -> None:
    posterior = GaussianProcess.fit(SEEN, np.full(len(SEEN), 7.0)).posterior(GRID)
    np.testing.assert_allclose(posterior.mean, 7.0)
    assert np.isfinite(posterior.std).all()


@pytest.mark.parametrize("name", sorted(ACQUISITIONS))
def test_an_acquisition_prefers_the_lower_and_the_less_known(name: str) -> None:
    worth = ACQUISITIONS[name](np.array([1.0, 2.0, 2.0]), np.array([0.5, 0.5, 1.0]), 1.5, 0.5)
    assert worth[0] > worth[1]
    assert worth[2] > worth[1]


def test_exploration_fades_as_the_process_becomes_sure() -> None:
    targets = np.log([100.0, 200.0, 400.0])
    assert exploration_factor(np.full(5, 0.01), targets) < 0.1 * exploration_factor(np.full(5, 0.5), targets)
    assert exploration_factor(np.full(5, 1e9), targets) == 1.0


def test_what_the_process_sees_is_bounded_and_holds_best_and_newest() -> None:
    times = generator(0).permutation(2000) + 1.0
    timed = [Trial(Candidate("s", (at,)), Outcome.OK, float(us)) for at, us in enumerate(times)]
    kept = select_spread_trials(timed, ROWS)
    assert len(kept) <= ROWS
    assert timed[-1] in kept
    assert min(timed, key=lambda trial: trial.latency_us or 0) in kept
    assert [trial.candidate.decisions for trial in kept] == sorted(
        trial.candidate.decisions for trial in kept
    )


def test_all_three_measures_have_their_say() -> None:
    space = SyntheticSpace(128, 128, 64)
    history = simulate(space, RandomSearch(), None, trials=48, round_size=48, seed=0)
    proposals = BayesianOptimisation(considered=512).propose(space, history, None, 48, generator(0))
    assert {proposal.origin for proposal in proposals} >= set(ACQUISITIONS)
