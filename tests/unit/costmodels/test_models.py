"""Boosters are less sure of rows that they never saw, and chance differs by seed."""

import numpy as np

from mallorn.costmodels.random import RandomModel
from mallorn.costmodels.testing import easy_data
from mallorn.costmodels.xgboost_models import XGBoost


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
