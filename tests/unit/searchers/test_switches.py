"""A learner with its learning switched off teaches nothing to anything, and still proposes."""

from typing import Any

import numpy as np
import pytest

from mallorn.costmodels.random import RandomModel
from mallorn.searchers.algorithms.reinforce import Reinforce
from mallorn.searchers.base import Searcher
from mallorn.searchers.learning.knobs import KnobDistributions
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn_research.searchers.evolution_strategy import EsState, EvolutionStrategy
from mallorn_research.searchers.monte_carlo_tree_search import Mcts, SearchTrees
from mallorn_research.searchers.ppo import Actor, Ppo
from mallorn_research.searchers.qlearning import QLearning, QValues


def proposed(searcher: Searcher) -> int:
    space = SyntheticSpace(64, 64, 64)
    known = [space.measure(each) for each in dict.fromkeys(space.sample(np.random.default_rng(0), 40))]
    return len(searcher.propose(space, known, RandomModel(), 16, np.random.default_rng(1)))


class Taught(Exception):
    """Parameters were stored."""


def teach(*_lesson: Any) -> None:
    raise Taught


@pytest.mark.parametrize(
    ("kind", "part", "method"),
    [
        (Ppo, Actor, "learn"),
        (QLearning, QValues, "learn"),
        (Reinforce, KnobDistributions, "learn"),
        (EvolutionStrategy, EsState, "toward"),
    ],
)
def test_without_learning_no_lesson_is_given(
    kind: type[Any], part: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, method, teach)
    with pytest.raises(Taught):
        proposed(kind())
    assert proposed(kind(learning=False)) == 16


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
