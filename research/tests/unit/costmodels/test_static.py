"""The linear model chooses its ridge as leaving rows out one at a time would."""

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.testing import easy_data
from mallorn_research.costmodels.ridge_on_code_counts import RidgeOnCodeCounts, left_out_error


def test_errors_on_rows_left_out_are_those_of_as_many_fits() -> None:
    rng = np.random.default_rng(0)
    rows, truth, strength = rng.normal(size=(12, 3)), rng.normal(size=12), 0.7
    errors = []
    for at in range(12):
        rest = np.delete(rows, at, axis=0)
        fit = np.linalg.solve(rest.T @ rest + strength * np.eye(3), rest.T @ np.delete(truth, at))
        errors.append(truth[at] - rows[at] @ fit)
    left, size, _ = np.linalg.svd(rows, full_matrices=False)
    assert left_out_error(left, size, truth, strength) == pytest.approx(np.mean(np.square(errors)))


def test_what_is_linear_is_learned_exactly_and_what_is_far_away_is_unsure() -> None:
    rng = np.random.default_rng(0)
    features = np.zeros((200, 48), dtype=np.float32)
    features[:, :3] = rng.normal(size=(200, 3))
    labels = (features[:, 0] - 2 * features[:, 1]).astype(np.float32)
    labels -= labels.max()
    model = RidgeOnCodeCounts()
    model.fit(features, labels, np.zeros(200, dtype=np.int64), seed=0)
    mean, std = model.predict(features)
    np.testing.assert_allclose(mean, labels, atol=0.05)
    assert model.predict(features + 50 * (features != 0)).std.min() > 2 * std.mean()


def test_rows_of_another_view_are_refused() -> None:
    features, labels, groups = easy_data(20, seed=0)
    with pytest.raises(InvalidRequest, match="do not fit the view code of 48 columns"):
        RidgeOnCodeCounts().fit(features, labels, groups, seed=0)
