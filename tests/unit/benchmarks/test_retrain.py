"""The benchmark of refits does what a worker does, on as many made-up rows as it is asked for."""

import numpy as np
import pytest

from benchmarks.retrain import SHAPES, describe, growth, made_up, refit
from mallorn.core.outcomes import Outcome
from mallorn.costmodels.labels import labels


def test_made_up_rows_are_of_several_tasks_and_fail_at_times() -> None:
    family = made_up(2000)
    assert len(family.latencies_us) == len(family.outcomes) == len(family.groups) == 2000
    assert set(family.groups) == set(range(len(SHAPES)))
    assert {Outcome.OK, Outcome.BUILD_ERROR} == set(family.outcomes)
    assert [us is None for us in family.latencies_us] == [
        outcome != Outcome.OK for outcome in family.outcomes
    ]
    assert labels(family.latencies_us, family.groups, family.outcomes).max() == 0


def test_the_features_of_the_sample_are_its_candidates() -> None:
    family = made_up(50)
    chosen = np.array([40, 3, 17])
    together = describe(family, chosen)
    alone = np.vstack([describe(family, chosen[[at]]) for at in range(3)])
    assert np.array_equal(together, alone)
    assert len(np.unique(together, axis=0)) == 3


def test_a_refit_tells_its_parts() -> None:
    assert set(refit("lightgbm", made_up(100), seed=0)) == {"draw", "features", "fit"}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [({"1000": 1.0, "10000": 2.0, "1000000": 5.0}, 2.5), ({"100": 1.0, "1000": 4.0}, 1.0)],
)
def test_growth_is_told_from_where_the_sample_is_full(seconds: dict[str, float], expected: float) -> None:
    assert growth({rows: {"refit": sec} for rows, sec in seconds.items()}) == expected
