"""Runs one search on an arena, and times its proposals and its model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from costmodels.base import CostModel
from research.replay.search_arenas import Arena
from searchers.base import Searcher, Trial
from searchers.batch_searcher import Request
from searchers.simulate_search import trained
from searchers.stateful import continued

MakeModel = Callable[[], CostModel]


@dataclass(frozen=True, slots=True)
class PlayedSearch:
    """A finished search."""

    trials: tuple[Trial, ...]
    optimum_us: float
    propose_sec: float
    fit_sec: float

    @property
    def curve(self) -> list[float]:
        """After each trial: best so far over the optimum; infinite before the first success."""
        times = np.array([np.inf if t.latency_us is None else t.latency_us for t in self.trials])
        curve: list[float] = (np.minimum.accumulate(times) / self.optimum_us).tolist()
        return curve


def play(
    arena: Arena,
    searcher: Searcher,
    make_model: MakeModel | None,
    *,
    trials: int,
    batch: int,
    seed: int,
) -> PlayedSearch:
    """Propose, measure and refit until `trials` candidates are measured or the space has no more."""
    history: list[Trial] = []
    propose_sec = fit_sec = 0.0
    searcher = continued(searcher)
    while len(history) < trials:
        began = perf_counter()
        model = trained(arena.space, history, make_model, seed) if make_model and history else None
        fitted = perf_counter()
        rng = np.random.default_rng([seed, len(history)])
        asked = Request(arena.space, history, model, min(batch, trials - len(history)), rng)
        proposals = arena.propose(searcher, asked)
        fit_sec += fitted - began
        propose_sec += perf_counter() - fitted
        if not proposals:
            break
        history += [replace(arena.measure(each.candidate), origin=each.origin) for each in proposals]
    return PlayedSearch(tuple(history), arena.optimum_us, propose_sec, fit_sec)
