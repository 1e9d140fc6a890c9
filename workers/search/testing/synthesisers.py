"""The conformance kit of samplers that may make up candidates."""
# ruff: noqa: S101

import numpy as np
import pytest

from workers.search.sampler import BatchSampler, Synthesiser
from workers.search.synthetic import SyntheticSpace
from workers.search.testing.checks import assert_well_formed, generator
from workers.search.testing.samplers import BatchSamplerTestCase

SPACE = SyntheticSpace(64, 64, 64)


class SynthesiserTestCase(BatchSamplerTestCase):
    """As BatchSamplerTestCase, whose checks hold too: give the fixture `sampler`."""

    @pytest.fixture
    def maker(self, sampler: BatchSampler) -> Synthesiser:
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
