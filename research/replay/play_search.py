"""Run one search on an arena; time the searcher's proposals and the fits of the model."""

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
    """A finished search: its trials, and seconds spent on proposals and on fits."""

    trials: tuple[Trial, ...]
    optimum_us: float
    propose_sec: float
    fit_sec: float

    @property
    def curve(self) -> list[float]:
        """Best latency after each trial, over the optimum; infinite before a success."""
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
    """Refit, propose and measure until `trials` are measured or nothing is proposed."""
    history: list[Trial] = []
    propose_sec = fit_sec = 0.0
    searcher = continued(searcher)
    while len(history) < trials:
        start = perf_counter()
        model = trained(arena.space, history, make_model, seed) if make_model and history else None
        fit_end = perf_counter()
        rng = np.random.default_rng([seed, len(history)])
        request = Request(arena.space, history, model, min(batch, trials - len(history)), rng)
        proposals = arena.propose(searcher, request)
        fit_sec += fit_end - start
        propose_sec += perf_counter() - fit_end
        if not proposals:
            break
        history += [replace(arena.measure(each.candidate), origin=each.origin) for each in proposals]
    return PlayedSearch(tuple(history), arena.optimum_us, propose_sec, fit_sec)
