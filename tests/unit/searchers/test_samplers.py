"""The sampler `contextual` explores more where the model is in doubt."""

import numpy as np
import pytest

from mallorn.costmodels.base import Prediction
from mallorn.searchers.pooled_searcher import Contextual
from mallorn.searchers.sampler import ScoredPool
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.searchers.testing import generator


def pool_of(mean: float, std: float, size: int = 200) -> ScoredPool:
    space = SyntheticSpace(64, 64, 64)
    drawn = list(dict.fromkeys(space.sample(generator(0), 2 * size)))[:size]
    alike = np.ones(size, dtype=np.float32)
    noise = 0.01 * generator(1).normal(size=size).astype(np.float32)
    return ScoredPool(drawn, space.features(drawn), Prediction(mean * alike + noise, std * alike))


@pytest.mark.parametrize(
    ("mean", "std", "low", "high"), [(-0.5, 0.0, 0.02, 0.02), (-0.5, 0.3, 0.1, 0.3), (0.0, 9.0, 0.5, 0.5)]
)
def test_the_explored_share_follows_the_doubt(mean: float, std: float, low: float, high: float) -> None:
    assert low - 1e-6 <= Contextual().random_share(pool_of(mean, std)) <= high + 1e-6


def test_doubt_about_slow_candidates_matters_less() -> None:
    assert Contextual().random_share(pool_of(-3.0, 0.5)) < 0.2 * Contextual().random_share(pool_of(0.0, 0.5))
