"""Simulates searches on a synthetic space, to test searchers and compare them by trials."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from mallorn.costmodels.base import CostModel
from mallorn.costmodels.labels import labels
from mallorn.searchers.base import Searcher, Trial
from mallorn.searchers.space import Space
from mallorn.searchers.synthetic_space import SyntheticSpace


def simulate(
    space: SyntheticSpace,
    searcher: Searcher,
    make_model: Callable[[], CostModel] | None,
    *,
    trials: int,
    round_size: int,
    seed: int,
) -> list[Trial]:
    """Propose, measure and refit until `trials` are measured, or no candidates are left."""
    history: list[Trial] = []
    while len(history) < trials:
        model = fit_on_history(space, history, make_model, seed) if make_model and history else None
        rng = np.random.default_rng([seed, len(history)])
        proposals = searcher.propose(space, history, model, min(round_size, trials - len(history)), rng)
        if not proposals:
            break
        history += [replace(space.measure(p.candidate), origin=p.origin) for p in proposals]
    return history


def fit_on_history(
    space: Space, history: Sequence[Trial], make_model: Callable[[], CostModel], seed: int
) -> CostModel:
    group = np.zeros(len(history), dtype=np.int64)
    label = labels([t.latency_us for t in history], group, [t.outcome for t in history])
    model = make_model()
    rows = space.features_in_view(model.view, [t.candidate for t in history])
    model.fit(rows, label, group, seed=seed)
    return model


def best_us(history: Sequence[Trial]) -> float:
    """Return the least latency in the history, in us. Raises ValueError if it has none."""
    return min(trial.latency_us for trial in history if trial.latency_us is not None)
