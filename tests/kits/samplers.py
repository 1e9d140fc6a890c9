"""The conformance kit of samplers."""

import numpy as np
import pytest

from mallorn.costmodels.base import Prediction
from mallorn.searchers.sampler import Sampler, ScoredPool, Synthesiser
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.searchers.testing import assert_well_formed, generator

SPACE = SyntheticSpace(64, 64, 64)


class SamplerTestCase:
    """Give the fixture `sampler`; the kit offers it pools of any size."""

    @pytest.fixture
    def sampler(self) -> Sampler:
        raise NotImplementedError

    @staticmethod
    def pool(size: int) -> ScoredPool:
        space = SyntheticSpace(64, 64, 64)
        drawn = list(dict.fromkeys(space.sample(generator(0), 2 * size)))[:size]
        scores = generator(1).normal(size=len(drawn)).astype(np.float32)
        return ScoredPool(drawn, space.features(drawn), Prediction(scores, np.abs(scores)))

    @pytest.mark.parametrize(("size", "count"), [(0, 4), (1, 4), (50, 0), (50, 16), (50, 50), (50, 80)])
    def test_it_chooses_distinct_lines_as_many_as_there_are(
        self, sampler: Sampler, size: int, count: int
    ) -> None:
        chosen = sampler.choose(self.pool(size), count, generator(2)).tolist()
        assert len(chosen) == len(set(chosen)) == min(size, count)
        assert set(chosen) <= set(range(size))

    def test_the_choice_is_a_pure_function_of_the_arguments(self, sampler: Sampler) -> None:
        first = sampler.choose(self.pool(60), 16, generator(3))
        np.testing.assert_array_equal(sampler.choose(self.pool(60), 16, generator(3)), first)


class SynthesiserTestCase(SamplerTestCase):
    """As SamplerTestCase, whose checks hold too: give the fixture `sampler`."""

    @pytest.fixture
    def maker(self, sampler: Sampler) -> Synthesiser:
        assert isinstance(sampler, Synthesiser)
        return sampler

    @pytest.mark.parametrize(
        ("size", "known", "count"), [(0, 0, 4), (0, 40, 4), (1, 0, 4), (60, 0, 16), (60, 60, 16), (60, 60, 0)]
    )
    def test_what_it_composes_is_distinct_well_formed_and_not_measured(
        self, maker: Synthesiser, size: int, known: int, count: int
    ) -> None:
        both = self.pool(size + known)
        pool, measured = both.without(np.arange(size, size + known)), both.without(np.arange(size))
        composed = maker.compose(SPACE, pool, measured, count, generator(2))
        assert len(composed) == len(set(composed)) <= count
        assert not set(composed) & set(measured.candidates)
        for candidate in composed:
            assert_well_formed(SPACE, candidate)

    def test_what_it_composes_is_a_pure_function_of_the_arguments(self, maker: Synthesiser) -> None:
        both = self.pool(120)
        pool, measured = both.without(np.arange(60, 120)), both.without(np.arange(60))
        first = maker.compose(SPACE, pool, measured, 16, generator(3))
        assert maker.compose(SPACE, pool, measured, 16, generator(3)) == first
