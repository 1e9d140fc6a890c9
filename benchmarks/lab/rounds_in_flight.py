"""Searches with several rounds of one workload in flight, on tasks whose best candidate is known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.lab.cells import BATCH, Step
from benchmarks.lab.grid import STANDARD
from benchmarks.lab.replay_search import Arena, MakeModel
from benchmarks.lab.summary import FACTOR, WORST
from mallorn.core.registry import resolve
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.labels import labels
from mallorn.searchers.base import RANDOM, Proposal, Trial
from mallorn.searchers.fill_round import as_pending_trials
from mallorn.searchers.pooled_searcher import Request
from mallorn.searchers.space import Candidate, Space
from mallorn.searchers.synthetic_space import fit_on_history

# Names of the ways; `benchmarks.in_flight` describes them.
KNOWN, UNKNOWN, PREDICTED, AHEAD, LATER = "known", "unknown", "predicted", "ahead", "later"


@dataclass(frozen=True)
class Cell:
    """One search: a task, a searcher, how many rounds are in flight, and what is known of them."""

    arena: str
    search: str
    way: str
    in_flight: int
    seed: int
    trials: int


@dataclass(frozen=True)
class Finished:
    """The result of a search. It ends early when it has found the best known candidate.

    A step is a slot, counted from one, and the ratio to the best known to which it improved.
    """

    cell: Cell
    slots: int
    duplicates: int
    steps: tuple[Step, ...]

    @property
    def trials(self) -> int:
        """The first slot within FACTOR of the best known; the budget if there is none."""
        return next((slot for slot, ratio in self.steps if ratio <= FACTOR), self.cell.trials)

    @property
    def round_times(self) -> int:
        """The same in durations of a round, with one device for each round in flight."""
        number = (self.trials - 1) // BATCH
        if self.cell.way == LATER:  # the first round has the devices to itself
            return 1 if number == 0 else (number - 1) // self.cell.in_flight + 2
        return number // self.cell.in_flight + 1

    def after(self, slot: int) -> float:
        """Best so far over the best known, at most WORST."""
        return min([WORST, *(ratio for at, ratio in self.steps if at <= slot)])


def play(arena: Arena, cell: Cell) -> Finished:
    """Run one search."""
    searcher = resolve("search", cell.search)(resolve("sampler", STANDARD.sampler)())
    make_model = None if cell.search == RANDOM else STANDARD.make_model()
    trials: list[list[Trial]] = []
    proposals: list[list[Proposal]] = []
    seen: set[Candidate] = set()
    steps: list[Step] = []
    best, duplicates = np.inf, 0
    while len(trials) * BATCH < cell.trials and best > 1.0:
        number = len(trials)
        closed = max(int(cell.way == LATER and number > 0), number - cell.in_flight + 1)
        history = [trial for round_ in trials[:closed] for trial in round_]
        pending = as_pending_trials([each for round_ in proposals[closed:] for each in round_])
        model = fit(arena.space, history, pending, make_model, cell) if make_model and history else None
        lists = {UNKNOWN: history, AHEAD: [*pending, *history]}
        known = lists.get(cell.way, [*history, *pending])
        rng = np.random.default_rng([cell.seed, number])
        batch = arena.propose(searcher, Request(arena.space, known, model, BATCH, rng))
        new = [each for each in batch if each.candidate not in seen]
        results = [replace(arena.measure(each.candidate), origin=each.origin) for each in new]
        for proposal, result in zip(new, results, strict=True):
            if result.latency_us is not None and result.latency_us / arena.optimum_us < best:
                best = round(result.latency_us / arena.optimum_us, 5)
                steps.append((number * BATCH + batch.index(proposal) + 1, best))
        seen.update(each.candidate for each in batch)
        duplicates += len(batch) - len(new)
        trials.append(results)
        proposals.append(new)
    return Finished(cell, len(trials) * BATCH, duplicates, tuple(steps))


def fit(
    space: Space, history: Sequence[Trial], pending: Sequence[Trial], make_model: MakeModel, cell: Cell
) -> CostModel:
    """Fit a model to the history and, if the way asks for it, to predictions of pending trials."""
    model = fit_on_history(space, history, make_model, cell.seed)
    if not pending or cell.way != PREDICTED:
        return model
    group = np.zeros(len(history) + len(pending), dtype=np.int64)
    known = labels(
        [each.latency_us for each in history], group[: len(history)], [each.outcome for each in history]
    )
    rows = space.features_in_view(model.view, [each.candidate for each in [*history, *pending]])
    assumed = np.minimum(0, model.predict(rows[len(history) :]).mean)
    model.fit(rows, np.concatenate([known, assumed]), group, seed=cell.seed)
    return model


def parse(row: dict[str, Any]) -> Finished:
    """Return a finished search as it was stored."""
    return Finished(
        **row | {"cell": Cell(**row["cell"]), "steps": tuple((at, ratio) for at, ratio in row["steps"])}
    )
