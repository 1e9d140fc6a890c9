"""Every searcher and sampler of the package keeps its contract."""

from typing import Any

import pytest

from mallorn.core.registry import RESEARCH_NAMES, resolve
from mallorn.costmodels.base import CostModel
from mallorn.searchers.base import Searcher
from mallorn.searchers.sampler import Sampler, Synthesiser
from mallorn.searchers.testing import SearcherTestCase
from mallorn_research.costmodels.prefix_boosters import GeneratorModel, ValueModel
from research.tests.unit.searchers.trained_bases import base_of
from tests.kits.samplers import SamplerTestCase, SynthesiserTestCase

# A round of their usual size takes long.
OPTIONS: dict[str, dict[str, Any]] = {
    "beam": {"considered": 512},
    "bo": {"considered": 512, "kept": 256},
    "es": {"offspring": 128, "generations": 3},
    "felix": {"considered": 256, "steps": 4},
    "generator": {"considered": 512, "drawn": 128},
    "guided": {"steps": 3},
    "mcts": {"considered": 512, "trees": 4, "batch": 64},
    "ppo": {"considered": 256, "walkers": 16},
    "qlearning": {"considered": 256, "walkers": 16},
}
SMALL = (64, 64, 128), (128, 64, 64)


def made(seam: str, name: str, **options: Any) -> Any:
    return resolve(seam, name)(**OPTIONS.get(name, {}) | options)


def samplers(*, synthesise: bool) -> list[str]:
    """Return the names of the samplers that compose candidates, or of those that only choose."""
    names = RESEARCH_NAMES["sampler"]
    return [name for name in names if issubclass(resolve("sampler", name), Synthesiser) is synthesise]


class TestSearcher(SearcherTestCase):
    @pytest.fixture(params=RESEARCH_NAMES["search"])
    def searcher(self, request: pytest.FixtureRequest) -> Searcher:
        return made("search", request.param)


class TestSearcherThatDoesNotLearn(SearcherTestCase):
    @pytest.fixture(params=["beam", "felix", "generator"])
    def searcher(self, request: pytest.FixtureRequest) -> Searcher:
        return made("search", request.param, learning=False)


class TestBeamOfValues(SearcherTestCase):
    @pytest.fixture
    def searcher(self) -> Searcher:
        return made("search", "beam", width=16)

    @pytest.fixture
    def model(self) -> CostModel:
        return base_of(ValueModel, *SMALL)


class TestGeneratorWithItsModel(SearcherTestCase):
    @pytest.fixture
    def searcher(self) -> Searcher:
        return made("search", "generator")

    @pytest.fixture
    def model(self) -> CostModel:
        return base_of(GeneratorModel, *SMALL)


class TestSampler(SamplerTestCase):
    @pytest.fixture(params=samplers(synthesise=False))
    def sampler(self, request: pytest.FixtureRequest) -> Sampler:
        return made("sampler", request.param)


class TestSynthesiser(SynthesiserTestCase):
    @pytest.fixture(params=samplers(synthesise=True))
    def sampler(self, request: pytest.FixtureRequest) -> Sampler:
        return made("sampler", request.param)
