"""The surrogate of gradient ascent knows which way is up."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mallorn.costmodels.xgboost_models import XGBoost
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.pooled_searcher import Request
from mallorn.searchers.space import Choice, ChoiceKind, Sketch
from mallorn.searchers.synthetic_space import SyntheticSpace, fit_on_history
from mallorn_research.costmodels.dense_layers import forward, initial, input_gradients
from mallorn_research.searchers.decision_vector_encoding import genes_of
from mallorn_research.searchers.felix import ASCENT, Felix, Surrogate


def sketch(*extents: int) -> Sketch:
    tiles = [Choice(ChoiceKind.TILE, 4, extent=extent, limit=64) for extent in extents]
    return Sketch("any", "", (*tiles, Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2))))


def test_a_slope_is_what_finite_differences_say() -> None:
    rng = np.random.default_rng(0)
    layers = [layer.astype(np.float64) for layer in initial(rng, 2, (3, 16, 16, 1))]
    rows = rng.normal(size=(1, 5, 3))
    slope = input_gradients(layers, forward(layers, rows))
    for column in range(3):
        step = 1e-6 * (np.arange(3) == column)
        change = forward(layers, rows + step)[-1] - forward(layers, rows - step)[-1]
        np.testing.assert_allclose(slope[:, :, column], change[:, :, 0] / 2e-6, atol=1e-5)


@given(st.lists(st.sampled_from([1, 12, 64, 97, 360]), min_size=1, max_size=3), st.integers(0, 99))
def test_a_point_is_projected_to_where_factors_multiply_up(extents: list[int], seed: int) -> None:
    genes = genes_of(sketch(*extents))
    rng = np.random.default_rng(seed)
    near = genes.project(rng.normal(0, 3, (10, genes.columns)))
    assert (near >= 0).all()
    logs = near @ genes.log_factor_matrix()
    for axis, extent in enumerate(extents):
        if extent > 1:
            factors = logs[:, 4 * axis : 4 * axis + 4].sum(axis=1)
            np.testing.assert_allclose(factors, np.log2(extent), atol=1e-9)
    np.testing.assert_allclose(genes.project(near), near, atol=1e-9)


def test_logs_of_points_are_those_of_the_factors_that_they_stand_for() -> None:
    genes = genes_of(sketch(360, 64))
    rows = SketchRules(genes.sketch).sample(np.random.default_rng(0), 20)
    points = genes.encode(rows)
    np.testing.assert_allclose((points @ genes.log_factor_matrix())[:, :8], np.log2(rows[:, :8]))
    np.testing.assert_array_equal(genes.project(points), points)


def test_a_surrogate_rises_where_scores_rise() -> None:
    """Scores that fall with the distance of the innermost factor from 16."""
    genes = genes_of(sketch(256))
    rows = SketchRules(genes.sketch).sample(np.random.default_rng(0), 400)
    points = genes.encode(rows)
    surrogate = Surrogate(genes, points, -np.abs(np.log2(rows[:, 3]) - 4.0), np.random.default_rng(0))
    slope = surrogate.slope(points)[:, 3]
    assert (slope[rows[:, 3] <= 4] > 0).mean() > 0.9
    assert (slope[rows[:, 3] == 64] < 0).mean() > 0.9


def test_points_without_freedom_have_scores_and_no_slope() -> None:
    genes = genes_of(sketch(1))
    points = genes.encode(np.ones((8, 5), dtype=np.int32))
    surrogate = Surrogate(genes, points, np.full(8, -1.0), np.random.default_rng(0))
    np.testing.assert_allclose(surrogate(points), -1.0, atol=0.2)
    assert not surrogate.slope(points).any()


def test_a_gradient_climbs_higher_than_random_steps_of_its_length() -> None:
    space = SyntheticSpace(256, 256, 256)
    history = [space.measure(c) for c in dict.fromkeys(space.sample(np.random.default_rng(0), 64))]
    model = fit_on_history(space, history, XGBoost, seed=0)
    height = {}
    for learning in (True, False):
        asked = Request(space, history, model, 16, np.random.default_rng(0))
        pool = Felix(learning=learning).pool(asked)
        passed = [candidate for candidate, origin in pool.items() if origin == ASCENT]
        height[learning] = float(model.predict(space.features(passed)).mean.mean())
    assert height[True] > height[False] + 0.4
