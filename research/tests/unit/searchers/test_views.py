"""es and guided screen by the view that their cost model reads."""

import numpy as np

from mallorn.costmodels.base import Matrix, Prediction
from mallorn.costmodels.random import RandomModel
from mallorn.costmodels.views import LOOPS
from mallorn.searchers.pooled_searcher import score
from mallorn_research.searchers.evolution_strategy import EvolutionStrategy
from mallorn_research.searchers.guided_walk import Guided
from tests.unit.searchers.test_views import SPACE, Compiled, LikesLongCode


class LikesLongTrees(RandomModel):
    """Reads loop trees."""

    view = "loops"

    def predict(self, features: Matrix) -> Prediction:
        lines = LOOPS.tables(features)[:, :, 0].sum(axis=1)
        return Prediction(lines, np.ones_like(lines))


def test_scores_are_of_the_models_view_and_samplers_still_see_decisions() -> None:
    drawn = SPACE.sample(np.random.default_rng(0), 30)
    pool = score(SPACE, LikesLongTrees(), drawn)
    lines = LOOPS.tables(SPACE.features_in_view("loops", drawn))[:, :, 0].sum(axis=1)
    np.testing.assert_array_equal(pool.prediction.mean, lines)
    np.testing.assert_array_equal(pool.features, SPACE.features(drawn))


def test_a_search_follows_a_model_of_another_view() -> None:
    rng = np.random.default_rng(0)
    history = []
    found = [p.candidate for p in Guided().propose(SPACE, history, LikesLongTrees(), 12, rng)]
    drawn = SPACE.sample(np.random.default_rng(1), 200)
    assert np.mean(_lines(found)) > np.mean(_lines(drawn))


def _lines(candidates) -> Matrix:
    return LOOPS.tables(SPACE.features_in_view("loops", candidates))[:, :, 0].sum(axis=1)


def test_an_evolution_strategy_climbs_generated_code_and_has_few_candidates_compiled() -> None:
    space, model = Compiled(), LikesLongCode()
    model.asked.clear()
    strategy = EvolutionStrategy(random_share=0.0, compiled=96)
    history = [space.measure(candidate) for candidate in space.defaults()]
    proposals = strategy.propose(space, history, model, 12, np.random.default_rng(0))
    found = [proposal.candidate for proposal in proposals]
    drawn = space.features_in_view("executed", space.sample(np.random.default_rng(1), 200))[:, 0]
    assert np.nanmedian(space.features_in_view("executed", found)[:, 0]) > np.nanmedian(drawn)
    assert not np.isnan(space.features_in_view("executed", found)).any()
    assert sum(model.asked) <= 2 * 96 + len(space.defaults())
