"""Gradients of the networks are what a small step says they are."""

import numpy as np
import pytest

from mallorn.costmodels.ensemble_spread import UNSCALED, fit_monotone_curve
from mallorn.costmodels.testing import easy_data
from mallorn_research.costmodels.dense_layers import AdamW, forward, gradients, initial, lambda_rank_gradient
from mallorn_research.costmodels.mlp import MLP


def test_columns_that_never_vary_change_nothing() -> None:
    features, labels, groups = easy_data(100, seed=0)
    padded = np.hstack([features, np.full((100, 3), 7, dtype=np.float32)])
    plain, wide = MLP(), MLP()
    plain.fit(features, labels, groups, seed=0)
    wide.fit(padded, labels, groups, seed=0)
    np.testing.assert_array_equal(wide.predict(padded).mean, plain.predict(features).mean)


def test_gradients_are_what_small_steps_say() -> None:
    rng = np.random.default_rng(0)
    layers = [layer.astype(np.float64) for layer in initial(rng, 2, (3, 4, 1))]
    rows, push = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5))

    def loss() -> float:
        return float((forward(layers, rows)[-1][:, :, 0] * push).sum())

    slopes = gradients(layers, forward(layers, rows), push)
    for layer, slope in zip(layers, slopes, strict=True):
        for at in np.ndindex(layer.shape):
            before = layer[at]
            layer[at] = before + 1e-6
            above = loss()
            layer[at] = before - 1e-6
            below = loss()
            layer[at] = before
            assert slope[at] == pytest.approx((above - below) / 2e-6, abs=1e-5)


def test_steps_lead_to_the_least_loss() -> None:
    layers = [np.array([[[5.0]]]), np.zeros((1, 1, 1))]
    adam = AdamW(layers, 0.5, 200)
    for _ in range(200):
        adam.step([200 * (layers[0] - 1), np.zeros((1, 1, 1))])
    assert layers[0].item() == pytest.approx(1.0, abs=0.2)  # weight decay pulls a little


def test_a_wrong_pair_is_pushed_apart_and_every_list_for_itself() -> None:
    labels = np.array([[0.0, -2.0], [-2.0, 0.0]])
    push = lambda_rank_gradient(np.array([[0.0, 1.0], [0.0, 1.0]]), labels)
    assert push[0, 0] < 0 < push[0, 1]  # a step against it raises the faster
    np.testing.assert_allclose(push.sum(axis=1), 0, atol=1e-7)
    assert abs(push[0, 0]) > abs(push[1, 1])  # the second list is in order already


def test_swaps_near_the_top_weigh_more_and_ties_nothing() -> None:
    labels = np.array([[0.0, -1.0, -5.0, -6.0]])
    push = lambda_rank_gradient(np.array([[3.0, 4.0, 1.0, 2.0]]), labels)
    assert abs(push[0, 0]) > abs(push[0, 3])
    assert not lambda_rank_gradient(np.array([[1.0, 2.0]]), np.array([[-1.0, -1.0]])).any()


def test_a_scale_gives_labels_back_and_keeps_the_order() -> None:
    rng = np.random.default_rng(0)
    labels = -rng.random(400).astype(np.float32) * 4
    scores = np.exp(labels.astype(np.float64))
    scale = fit_monotone_curve(scores, labels, np.ones(400))
    made = scale(scores)
    assert np.abs(made - labels).mean() < 0.15
    assert (np.argsort(made, kind="stable") == np.argsort(scores, kind="stable")).all()


def test_without_rows_held_out_scores_stay_as_they_are() -> None:
    scores = np.array([3.0, -1.0])
    assert fit_monotone_curve(scores, np.zeros(2, dtype=np.float32), np.zeros(2)) is UNSCALED
    assert UNSCALED(scores).tolist() == [3.0, -1.0]
