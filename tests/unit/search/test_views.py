"""A searcher screens by the view that its cost model reads."""

import numpy as np
import pytest

from costmodels.base import Matrix, Prediction
from costmodels.random import RandomModel
from costmodels.views import LOOPS
from mallorn.core.errors import InvalidRequest
from workers.search.algorithms.guided import Guided
from workers.search.pooled import score
from workers.search.synthetic import SyntheticSpace

SPACE = SyntheticSpace()


class LikesLongTrees(RandomModel):
    """Reads loop trees."""

    view = "loops"

    def predict(self, features: Matrix) -> Prediction:
        lines = LOOPS.tables(features)[:, :, 0].sum(axis=1)
        return Prediction(lines, np.ones_like(lines))


def test_scores_are_of_the_models_view_and_samplers_still_see_decisions() -> None:
    drawn = SPACE.sample(np.random.default_rng(0), 30)
    pool = score(SPACE, LikesLongTrees(), drawn)
    lines = LOOPS.tables(SPACE.viewed("loops", drawn))[:, :, 0].sum(axis=1)
    np.testing.assert_array_equal(pool.prediction.mean, lines)
    np.testing.assert_array_equal(pool.features, SPACE.features(drawn))


def test_a_search_follows_a_model_of_another_view() -> None:
    rng = np.random.default_rng(0)
    history = []
    found = [p.candidate for p in Guided().propose(SPACE, history, LikesLongTrees(), 12, rng)]
    drawn = SPACE.sample(np.random.default_rng(1), 200)
    assert np.mean(_lines(found)) > np.mean(_lines(drawn))


def _lines(candidates) -> Matrix:
    return LOOPS.tables(SPACE.viewed("loops", candidates))[:, :, 0].sum(axis=1)


def test_a_view_that_takes_a_compiler_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="statements"):
        SPACE.viewed("statements", SPACE.sample(np.random.default_rng(0), 1))
