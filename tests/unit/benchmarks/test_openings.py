"""A base that never saw a task opens it, and is told by the best of its first proposals."""

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks import openings
from benchmarks.lab.synthetic_arena import SyntheticArena
from benchmarks.openings import FIRST, Known, _base, _figures, _headline
from mallorn.costmodels.base import CostModel


def known(m: int, n: int, k: int) -> Known:
    arena = SyntheticArena(m, n, k)
    drawn = dict.fromkeys(arena.space.sample(np.random.default_rng(0), 60))
    return arena, [arena.measure(candidate) for candidate in drawn]


def test_more_proposals_are_never_worse_and_a_base_beats_chance() -> None:
    tasks = [known(64, 64, 64), known(128, 64, 64), known(64, 128, 64)]
    figures = _figures(tasks, ["beam/value", "random/xgboost"], seeds=1)
    for best in figures.values():
        assert len(best) == len(FIRST)
        assert best == sorted(best, reverse=True)
        assert min(best) >= 1
    assert figures["beam/value"][0] < figures["random/xgboost"][0]
    assert "beam/value" in _headline({"synthetic": figures})


def test_the_task_that_is_opened_is_not_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [known(64, 64, 64), known(128, 64, 64), known(64, 128, 64)]
    learned: list[Sequence[Known]] = []

    def watched(name: str, others: Sequence[Known]) -> CostModel:
        learned.append(others)
        return _base(name, others)

    monkeypatch.setattr(openings, "_base", watched)
    openings._figures(tasks, ["random/xgboost"], seeds=1)
    assert learned == [tasks[1:], [tasks[0], tasks[2]], tasks[:2]]
