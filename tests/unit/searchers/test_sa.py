"""Annealing cools with the trials and goes on where rounds ended."""

import numpy as np

from mallorn.core.outcomes import Outcome
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn.searchers.algorithms.simulated_annealing import ANNEALING, Annealing
from mallorn.searchers.base import Trial
from mallorn.searchers.pooled_searcher import Request
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import SyntheticSpace, fit_on_history


def measured(space: SyntheticSpace, count: int) -> list[Trial]:
    return [space.measure(c) for c in dict.fromkeys(space.sample(np.random.default_rng(0), count))]


def changes(first: Candidate, second: Candidate) -> int:
    """How many of the five choices of a synthetic candidate differ."""
    if first.sketch != second.sketch:
        return 5
    old, new = np.array(first.decisions), np.array(second.decisions)
    return sum(bool((old[part] != new[part]).any()) for part in np.split(np.arange(12), [4, 8, 10, 11]))


def test_rounds_begin_colder_the_more_was_measured() -> None:
    temperatures = [Annealing().temperature(trials) for trials in (0, 64, 200, 5000)]
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[1] == temperatures[0] / 2
    assert temperatures[3] == Annealing().coldest


def test_without_a_model_it_stays_within_two_changes_of_what_was_measured() -> None:
    space = SyntheticSpace(64, 64, 64)
    history = measured(space, 30)
    pool = Annealing().pool(Request(space, history, None, 16, np.random.default_rng(0)))
    walked = [candidate for candidate, origin in pool.items() if origin == ANNEALING]
    near = [min(changes(c, trial.candidate) for trial in history) for c in walked]
    assert max(near) <= 2
    assert min(near) <= 1


def test_when_it_is_cold_the_chains_start_at_the_best() -> None:
    space = SyntheticSpace(64, 64, 64)
    candidates = space.sample(np.random.default_rng(0), 600)
    history = [Trial(c, Outcome.OK, 10.0 if at == 77 else 1000.0) for at, c in enumerate(candidates)]
    pool = Annealing().pool(Request(space, history, None, 16, np.random.default_rng(0)))
    assert max(changes(c, candidates[77]) for c, origin in pool.items() if origin == ANNEALING) <= 2


def test_chains_find_more_promising_candidates_than_luck_among_as_many() -> None:
    space = SyntheticSpace(128, 128, 64)
    history = measured(space, 120)
    model = fit_on_history(space, history, XGBoost, seed=0)
    walked = list(Annealing().pool(Request(space, history, model, 16, np.random.default_rng(0))))
    drawn = space.sample(np.random.default_rng(1), len(walked))
    best = [np.sort(model.predict(space.features(each)).mean)[-32:].mean() for each in (walked, drawn)]
    assert best[0] > best[1] + 0.05
