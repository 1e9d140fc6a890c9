"""The conformance kit of batch samplers."""
# ruff: noqa: S101

import numpy as np
import pytest

from costmodels.base import Prediction
from workers.search.sampler import BatchSampler, ScoredPool
from workers.search.synthetic import SyntheticSpace
from workers.search.testing.checks import generator


class BatchSamplerTestCase:
    """Give the fixture `sampler`; the kit offers it pools of any size."""

    @pytest.fixture
    def sampler(self) -> BatchSampler:
        raise NotImplementedError

    @staticmethod
    def pool(size: int) -> ScoredPool:
        space = SyntheticSpace(64, 64, 64)
        drawn = list(dict.fromkeys(space.sample(generator(0), 2 * size)))[:size]
        scores = generator(1).normal(size=len(drawn)).astype(np.float32)
        return ScoredPool(drawn, space.features(drawn), Prediction(scores, np.abs(scores)))

    @pytest.mark.parametrize(("size", "count"), [(0, 4), (1, 4), (50, 0), (50, 16), (50, 50), (50, 80)])
    def test_it_chooses_distinct_lines_as_many_as_there_are(
        self, sampler: BatchSampler, size: int, count: int
    ) -> None:
        chosen = sampler.choose(self.pool(size), count, generator(2)).tolist()
        assert len(chosen) == len(set(chosen)) == min(size, count)
        assert set(chosen) <= set(range(size))

    def test_the_choice_is_a_pure_function_of_the_arguments(self, sampler: BatchSampler) -> None:
        first = sampler.choose(self.pool(60), 16, generator(3))
        np.testing.assert_array_equal(sampler.choose(self.pool(60), 16, generator(3)), first)
