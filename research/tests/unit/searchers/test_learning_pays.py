"""At equal trials every searcher of the package beats luck, with a cost model and without."""

from itertools import product

import pytest

from mallorn.core.registry import RESEARCH_NAMES
from mallorn.costmodels.xgboost_models import XGBoost
from tests.unit.searchers.test_learning_pays import USUALLY_LEFT, Make, distance, luck

__all__ = ["luck"]
SHORT = {("bo", None)}  # what `make test` runs of it


def cases() -> list[object]:
    named = product(RESEARCH_NAMES["search"], (XGBoost, None))
    return [pytest.param(*case, marks=[pytest.mark.long] * (case not in SHORT)) for case in named]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make_model"), cases())
def test_at_equal_trials_it_beats_random_search(name: str, make_model: Make | None, luck: float) -> None:
    assert distance(name, make_model) < USUALLY_LEFT * luck
