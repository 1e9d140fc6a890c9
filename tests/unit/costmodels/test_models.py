"""Boosters are as sure as they may be, chance is chance, and an evaluation tells one from the other."""

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.random import RandomModel
from mallorn.costmodels.testing import easy_data
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn_research.costmodels.evaluation import Split
from tests.unit.costmodels.judging import evaluate, within_tasks


def test_the_spread_of_boosters_covers_what_they_miss() -> None:
    features, labels, groups = easy_data(600, seed=0)
    noise = np.random.default_rng(0).normal(0, 0.3, size=600).astype(np.float32)
    noisy = np.minimum(0, labels + noise)
    result = within_tasks(XGBoost, (features, noisy, groups))
    assert 0.85 < result.calibration < 0.995


def test_boosters_are_less_sure_of_what_they_never_saw() -> None:
    features, labels, groups = easy_data(400, seed=0)
    model = XGBoost()
    model.fit(features, labels, groups, seed=0)
    assert model.predict(features).std.mean() < XGBoost().predict(features).std.mean()


def test_chance_of_another_seed_scores_otherwise() -> None:
    data = easy_data(20, seed=0)
    one, other = RandomModel(), RandomModel()
    one.fit(*data, seed=1)
    other.fit(*data, seed=2)
    assert not np.array_equal(one.predict(data[0]).mean, other.predict(data[0]).mean)


def test_evaluation_tells_a_model_from_chance() -> None:
    features, labels, groups = easy_data(300, seed=0)
    learned = within_tasks(XGBoost, (features, labels, groups))
    chance = within_tasks(RandomModel, (features, labels, groups))
    assert learned.pairwise > 0.8 > 0.6 > chance.pairwise
    assert learned.recall > chance.recall
    assert learned.rmse < chance.rmse
    assert learned.rows == chance.rows == sum(len(g) - int(len(g) * 0.6) for g in split(groups))


def test_a_split_that_leaves_nothing_to_learn_or_to_judge_is_refused() -> None:
    data = easy_data(10, seed=0)
    everything, nothing = np.arange(10), np.arange(0)
    for train, test in ((everything, nothing), (nothing, everything)):
        with pytest.raises(InvalidRequest, match="too few for this split"):
            evaluate(RandomModel, *data, Split(train, test), seed=0)


def split(groups: np.ndarray) -> list[np.ndarray]:
    return [groups[groups == group] for group in np.unique(groups)]
