"""Replay several recorded tasks together, whose families share a cost model."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.lab.replay_search import Arena, MakeModel, RecordedArena
from mallorn.core.registry import resolve
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.labels import labels
from mallorn.searchers.base import Searcher, Trial
from mallorn.searchers.pooled_searcher import Request
from mallorn.services.planner.families.base import Families, Member

Histories = list[list[Trial]]


def play_together(
    arenas: Sequence[RecordedArena],
    grouping: str,
    searchers: Sequence[Searcher],
    make_model: MakeModel,
    *,
    round_size: int,
    seed: int,
) -> list[list[float]]:
    """Return each task's best time after each trial over its optimum; tasks take rounds in turn."""
    families: Families = resolve("families", grouping)()
    tasks = [arena.recorded.task for arena in arenas]
    members = [Member(i, task.workload, task.op, task.structure) for i, task in enumerate(tasks)]
    places = families.group(members)
    family_of = [places[member.id].family for member in members]
    histories: Histories = [[] for _ in arenas]
    waiting = list(range(len(arenas)))
    while waiting:
        for index in list(waiting):
            arena, history = arenas[index], histories[index]
            peers = [i for i in range(len(arenas)) if family_of[i] == family_of[index]]
            model = _fit([arenas[i] for i in peers], [histories[i] for i in peers], make_model, seed)
            rng = np.random.default_rng([seed, index, len(history)])
            request = Request(arena.space, history, model, round_size, rng)
            proposals = arena.propose(searchers[index], request)
            history += [replace(arena.measure(each.candidate), origin=each.origin) for each in proposals]
            if not proposals or len(history) >= len(arena.recorded.candidates):
                waiting.remove(index)
    return [_curve(arena, history) for arena, history in zip(arenas, histories, strict=True)]


def _fit(arenas: Sequence[Arena], histories: Histories, make_model: MakeModel, seed: int) -> CostModel | None:
    """Fit a model to the trials of a family's tasks; None before the first trial."""
    trials = [trial for history in histories for trial in history]
    if not trials:
        return None
    model = make_model()
    group = np.repeat(np.arange(len(histories)), [len(history) for history in histories])
    label = labels([trial.latency_us for trial in trials], group, [trial.outcome for trial in trials])
    rows = [
        arena.space.features_in_view(model.view, [trial.candidate for trial in history])
        for arena, history in zip(arenas, histories, strict=True)
        if history
    ]
    model.fit(np.vstack(rows), label, group, seed=seed)
    return model


def _curve(arena: Arena, history: Sequence[Trial]) -> list[float]:
    times = np.array([np.inf if trial.latency_us is None else trial.latency_us for trial in history])
    curve: list[float] = (np.minimum.accumulate(times) / arena.optimum_us).tolist()
    return curve
