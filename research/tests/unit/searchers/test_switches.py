"""A searcher with its learning switched off trains no part of it, and still proposes."""

from typing import Any

import numpy as np
import pytest

from mallorn_research.searchers.evolution_strategy import EsState, EvolutionStrategy
from mallorn_research.searchers.monte_carlo_tree_search import Mcts, SearchTrees
from mallorn_research.searchers.ppo import Actor, Ppo
from mallorn_research.searchers.qlearning import QLearning, QValues
from tests.unit.searchers.test_switches import check_learning_switch, proposed


@pytest.mark.parametrize(
    ("kind", "part", "method"),
    [(Ppo, Actor, "learn"), (QLearning, QValues, "learn"), (EvolutionStrategy, EsState, "toward")],
)
def test_without_learning_no_lesson_is_given(
    kind: type[Any], part: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_learning_switch(kind, part, method, monkeypatch)


@pytest.mark.parametrize("learning", [True, False])
def test_trees_without_learning_hold_visits_alone(learning: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: set[float] = set()
    credit = SearchTrees.credit_paths

    def listen(self: SearchTrees, paths: Any, worth: Any) -> None:
        told.update(np.round(worth, 9).tolist())
        credit(self, paths, worth)

    monkeypatch.setattr(SearchTrees, "credit_paths", listen)
    assert proposed(Mcts(considered=512, learning=learning)) == 16
    assert (told == {1.0}) != learning


def test_steps_without_learning_are_all_random(monkeypatch: pytest.MonkeyPatch) -> None:
    chances: list[float] = []
    ways = QValues.choose_directions

    def listen(self: QValues, here: Any, epsilon: float, rng: np.random.Generator) -> Any:
        chances.append(epsilon)
        return ways(self, here, epsilon, rng)

    monkeypatch.setattr(QValues, "choose_directions", listen)
    proposed(QLearning(learning=False))
    assert set(chances) == {1.0}
