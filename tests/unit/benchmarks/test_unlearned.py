"""A twin is its searcher with one switch off, named as any class of one's own."""

import pytest

from benchmarks.lab.unlearned import TWINS, Medoids
from mallorn.core.registry import REGISTRY, resolve
from searchers.batch_sampler import BatchSampler, Synthesiser
from searchers.testing import BatchSamplerTestCase


@pytest.mark.parametrize(("name", "location"), TWINS.items())
def test_a_twin_differs_from_its_searcher_in_one_switch(name: str, location: str) -> None:
    original, switch = name.rsplit("-", 1)
    assert original in REGISTRY["search"]
    twin, own = resolve("search", location), resolve("search", original)
    assert issubclass(twin, own)
    switched = {"unlearned": "learning", "forgetful": "keeping"}[switch]
    fields = vars(own()) | {switched: False}
    fields.pop("_lessons", None)
    assert {key: value for key, value in vars(twin()).items() if key != "_lessons"} == fields


class TestMedoids(BatchSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> BatchSampler:
        return Medoids()

    def test_it_makes_nothing_up(self, sampler: BatchSampler) -> None:
        assert not isinstance(sampler, Synthesiser)
