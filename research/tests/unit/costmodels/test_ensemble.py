"""The ensemble chooses by the newest rows, and its intervals hold what they say."""

import numpy as np
import pytest

from mallorn.core.registry import list_names
from mallorn.costmodels.analytic_models import Draft
from mallorn.costmodels.base import FAILED_LABEL, Prediction
from mallorn.costmodels.testing import Data, easy_data
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn_research.costmodels.best_of_models import (
    DEVIATIONS,
    FEWEST_ROWS,
    BestOfModels,
    scale_spreads,
    spread_factor,
)
from mallorn_research.costmodels.metrics import coverage


@pytest.fixture(scope="module")
def learned() -> BestOfModels:
    model = BestOfModels()
    model.fit(*easy_data(400, seed=0), seed=0)
    return model


def test_until_data_exists_the_draft_answers() -> None:
    space = SyntheticSpace(128, 128, 64)
    features = space.features(space.sample(np.random.default_rng(0), 20))
    model = BestOfModels()
    assert model.best.name == "draft"
    np.testing.assert_array_equal(model.predict(features).mean, Draft().predict(features).mean)
    few = FEWEST_ROWS - 1
    model.fit(*(part[:few] for part in easy_data(50, seed=0)), seed=0)
    assert model.best.name == "draft"


def test_with_data_a_learner_answers_and_is_named_after_loading(learned: BestOfModels) -> None:
    assert learned.best.name != "draft"
    assert learned.best.name in list_names("cost_model")
    assert BestOfModels.load(learned.save()).best.name == learned.best.name


def noisy_data(rows: int, seed: int) -> Data:
    features, labels, groups = easy_data(rows, seed)
    noise = np.random.default_rng(seed).normal(0, 0.3, rows)
    return features, np.clip(labels + noise, FAILED_LABEL, 0).astype(np.float32), groups


def test_four_fifths_of_what_it_has_not_seen_lie_in_its_80_percent_intervals() -> None:
    model = BestOfModels()
    model.fit(*noisy_data(600, seed=0), seed=0)
    features, labels, _ = noisy_data(2000, seed=1)
    assert 0.72 < coverage(*model.predict(features), labels, DEVIATIONS) < 0.88


def test_failures_alone_leave_the_prior() -> None:
    features, labels, groups = easy_data(60, seed=0)
    model = BestOfModels()
    model.fit(features, np.full_like(labels, FAILED_LABEL), groups, seed=0)
    assert model.best.name == "draft"


def prediction(std: float, rows: int = 999) -> Prediction:
    return Prediction(np.zeros(rows, dtype=np.float32), np.full(rows, std, dtype=np.float32))


def test_a_spread_that_is_right_is_kept_and_a_wrong_one_mended() -> None:
    labels = np.random.default_rng(0).normal(0, 0.5, 999).astype(np.float32)
    assert spread_factor(prediction(0.5), labels) == pytest.approx(1.0, abs=0.1)
    assert spread_factor(prediction(0.1), labels) == pytest.approx(5.0, abs=0.5)
    mended = scale_spreads(prediction(0.1), spread_factor(prediction(0.1), labels))
    assert coverage(*mended, labels, DEVIATIONS) == pytest.approx(0.8, abs=0.01)


def test_few_rows_make_careful_intervals() -> None:
    labels = np.array([0.1, -0.2, 0.4], dtype=np.float32)
    assert spread_factor(prediction(1.0, 3), labels) == pytest.approx(0.4 / DEVIATIONS)
    assert spread_factor(prediction(1.0, 0), labels[:0]) == 1.0
