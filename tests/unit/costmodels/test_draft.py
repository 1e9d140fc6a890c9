"""The analytic guess reads the tiles where workers put them, and prefers what any CPU prefers."""

import numpy as np
import pytest

from mallorn.core.values.machine import Machine, assume_typical_cpu
from mallorn.costmodels.analytic_models import Draft
from mallorn.costmodels.base import FAILED_LABEL
from mallorn.costmodels.decision_columns import WIDTH, read_tiling
from mallorn.costmodels.labels import labels
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.costmodels.testing import easy_data
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import TILED, UNROLLS, SyntheticSpace

SPACE = SyntheticSpace(256, 512, 128)


def score(*decisions: int, machine: Machine | None = None) -> float:
    return float(Draft(machine).predict(SPACE.features([Candidate(TILED, decisions)])).mean[0])


GOOD = (8, 4, 2, 4, 4, 4, 1, 32, 16, 8, 1, 0)


def test_tiles_and_unrolling_are_where_workers_put_them() -> None:
    features = SPACE.features([Candidate(TILED, GOOD)])
    assert features.shape == (1, WIDTH)
    tiles = read_tiling(features)
    assert tiles.spatial[0, -2:].tolist() == [[1, 8, 4, 2, 4], [1, 4, 4, 1, 32]]
    assert tiles.spatial[0, :-2].prod() == 1
    assert tiles.reduction[0, -1].tolist() == [1, 16, 8]
    assert tiles.reduction[0, :-1].prod() == 1
    assert tiles.unroll[0] == pytest.approx(UNROLLS[1])


@pytest.mark.parametrize(
    ("worse", "why"),
    [
        ((8, 4, 2, 4, 128, 4, 1, 1, 16, 8, 1, 0), "one lane of sixteen is used"),
        ((1, 32, 2, 4, 1, 16, 1, 32, 16, 8, 1, 0), "one core of eight works"),
        ((1, 4, 2, 32, 4, 2, 1, 64, 16, 8, 1, 0), "accumulators are spilled"),
        ((8, 32, 1, 1, 4, 8, 1, 16, 128, 1, 1, 0), "every sum waits for the one before"),
        ((256, 1, 1, 1, 32, 1, 1, 16, 16, 8, 1, 0), "pieces are too small to hand out"),
    ],
)
def test_it_knows_what_is_slow(worse: tuple[int, ...], why: str) -> None:
    assert score(*worse) < score(*GOOD) - 0.2, why


def test_another_machine_wants_other_tiles() -> None:
    narrow = (16, 4, 1, 4, 4, 16, 1, 8, 16, 8, 1, 0)
    assert score(*narrow) < score(*GOOD)
    assert score(*narrow, machine=assume_typical_cpu(cores=8, lanes=8)) > score(*narrow)


def test_it_orders_a_task_that_nobody_measured_and_chance_does_not() -> None:
    candidates = SPACE.sample(np.random.default_rng(0), 400)
    trials = [SPACE.measure(candidate) for candidate in candidates]
    group = np.zeros(400, dtype=np.int64)
    truth = labels([t.latency_us for t in trials], group, [t.outcome for t in trials])
    ran = truth > FAILED_LABEL
    scores = Draft().predict(SPACE.features(candidates)).mean
    assert pairwise_accuracy(scores[ran], truth[ran], group[ran]) > 0.65


def test_measurements_change_its_spread_and_never_its_scores() -> None:
    candidates = SPACE.sample(np.random.default_rng(0), 50)
    features, group = SPACE.features(candidates), np.zeros(50, dtype=np.int64)
    exact = Draft().predict(features).mean
    model = Draft()
    model.fit(features, exact - np.float32(0.5), group, seed=0)
    np.testing.assert_array_equal(model.predict(features).mean, exact)
    assert model.predict(features).std[0] < Draft().predict(features).std[0]


def test_its_machine_is_saved_with_it() -> None:
    features = SPACE.features([Candidate(TILED, GOOD)])
    model = Draft(assume_typical_cpu(cores=5, lanes=4))
    np.testing.assert_array_equal(
        Draft.load(model.save()).predict(features).mean, model.predict(features).mean
    )
    assert model.predict(features).mean[0] != Draft().predict(features).mean[0]


def test_rows_of_another_layout_are_scored_alike() -> None:
    assert np.ptp(Draft().predict(easy_data(20, seed=0)[0]).mean) == 0
