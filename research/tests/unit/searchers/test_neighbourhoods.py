"""A round of es and guided is bounded work, however long the history is."""

import pytest

from mallorn.searchers.base import Searcher
from mallorn_research.searchers.evolution_strategy import EvolutionStrategy
from mallorn_research.searchers.guided_walk import Guided
from tests.unit.searchers.test_neighbourhoods import check_bounded_work


@pytest.mark.parametrize("kind", [EvolutionStrategy, Guided])
def test_a_round_is_as_much_work_after_many_trials_as_after_few(kind: type[Searcher]) -> None:
    check_bounded_work(kind)
