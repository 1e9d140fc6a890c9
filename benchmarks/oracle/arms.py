"""Who proposes the candidates of a task: chance, our search, and everybody at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mallorn.core.job_options import JobOptions
from mallorn.core.registry import resolve
from mallorn.core.values.trial import Trial
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.labels import is_informative, labels
from mallorn.searchers.base import DEFAULT, Proposal, Searcher, prefix_origin
from mallorn.searchers.fill_round import Filter, propose_first_valid, random_fill
from mallorn.searchers.space import Space

BATCH = 16
DEFAULTS = JobOptions()
#: Searcher and cost model of the batches in which everything measured so far is known.
TOGETHER = (
    ("evolutionary", "xgboost"),
    ("guided", "forest"),
    ("ga", "xgboost"),
    ("random", ""),
    ("evolutionary", "forest"),
    ("sa", "xgboost"),
    ("guided", "xgboost"),
    ("es", "forest"),
)


@dataclass(frozen=True, slots=True)
class Arm:
    """A batch's proposer: it knows what was measured under its own name, or, of `together`, everything."""

    name: str
    search: str
    cost_model: str

    def propose(self, space: Space, history: Sequence[Trial], count: int, seed: int) -> list[Proposal]:
        rng = np.random.default_rng(seed)
        searcher: Searcher = resolve("search", self.search)(resolve("sampler", DEFAULTS.sampler)())
        model = _fitted(self.cost_model, space, history) if self.cost_model else None
        found = searcher.propose(space, history, model, count, rng)
        return [prefix_origin(proposal, self.search) for proposal in found]


OURS = Arm("ours", DEFAULTS.search, DEFAULTS.cost_model)


def first(space: Space) -> list[Proposal]:
    """The space's defaults, which all arms begin with."""
    return propose_first_valid(Filter(space, ()), space.defaults(), len(space.defaults()), DEFAULT)


def chance(space: Space, history: Sequence[Trial], count: int, seed: int) -> list[Proposal]:
    """Random candidates, none of them measured before."""
    return random_fill(space, Filter(space, history), count, np.random.default_rng(seed))


def together() -> Iterator[Arm]:
    """Every searcher in turn, for ever."""
    while True:
        for search, cost_model in TOGETHER:
            yield Arm("together", search, cost_model)


def _fitted(name: str, space: Space, history: Sequence[Trial]) -> CostModel | None:
    outcomes = [trial.outcome for trial in history]
    useful = np.flatnonzero(is_informative(outcomes))
    if sum(trial.time_us is not None for trial in history) < 8:
        return None
    rows = [history[at] for at in useful.tolist()]
    groups = np.zeros(len(rows), dtype=np.int64)
    label = labels([row.latency_us for row in rows], groups, [row.outcome for row in rows])
    model: CostModel = resolve("cost_model", name)()
    model.fit(space.features([row.candidate for row in rows]), label, groups, seed=len(rows))
    return model
