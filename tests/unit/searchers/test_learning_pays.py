"""At equal trials every searcher finds better than luck does, with a cost model and without."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from mallorn.core.registry import REGISTRY, resolve
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn.searchers.synthetic_space import SyntheticSpace, best_us, simulate

SPACE = SyntheticSpace(256, 512, 64)
SEEDS = range(4)
# How much of luck's distance from the optimum may be left.
MOST_LEFT = {("evolutionary", XGBoost): 0.25, ("evolutionary", None): 0.95}
USUALLY_LEFT = 0.5
SHORT = {("evolutionary", XGBoost)}  # what `make test` runs of it
Make = Callable[[], CostModel]


def distance(name: str, make_model: Make | None) -> float:
    """By how much the best found is above the optimum, as a logarithm, on average."""
    searcher = resolve("search", name)()
    runs = [simulate(SPACE, searcher, make_model, trials=96, round_size=16, seed=seed) for seed in SEEDS]
    return float(np.mean([np.log(best_us(run) / SPACE.optimum_us) for run in runs]))


@pytest.fixture(scope="module")
def luck() -> float:
    return distance("random", None)


def cases() -> list[object]:
    named = product(sorted(REGISTRY["search"].keys() - {"random"}), (XGBoost, None))
    return [pytest.param(*case, marks=[pytest.mark.long] * (case not in SHORT)) for case in named]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make_model"), cases())
def test_at_equal_trials_it_beats_random_search(name: str, make_model: Make | None, luck: float) -> None:
    assert distance(name, make_model) < MOST_LEFT.get((name, make_model), USUALLY_LEFT) * luck
