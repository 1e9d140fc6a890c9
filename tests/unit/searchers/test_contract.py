"""Every registered searcher and sampler keeps its contract: whoever registers one has its kit here."""

from typing import Any

import pytest

from mallorn.core.registry import REGISTRY, resolve
from mallorn.costmodels.base import CostModel
from mallorn.research.costmodels.prefix_boosters import GeneratorModel, ValueModel
from mallorn.searchers.base import Searcher
from mallorn.searchers.sampler import Sampler, Synthesiser
from mallorn.searchers.testing import SearcherTestCase
from tests.kits.samplers import SamplerTestCase, SynthesiserTestCase
from tests.unit.searchers.trained_bases import base_of

# A round of their usual size takes long; and topk explores hardly ever.
OPTIONS: dict[str, dict[str, Any]] = {
    "beam": {"considered": 512},
    "bo": {"considered": 512, "kept": 256},
    "es": {"offspring": 128, "generations": 3},
    "evolutionary": {"population": 256, "generations": 3},
    "felix": {"considered": 256, "steps": 4},
    "ga": {"population": 256, "generations": 3},
    "generator": {"considered": 512, "drawn": 128},
    "guided": {"steps": 3},
    "mcts": {"considered": 512, "trees": 4, "batch": 64},
    "portfolio": {"arms": ("evolutionary", "random")},
    "ppo": {"considered": 256, "walkers": 16},
    "qlearning": {"considered": 256, "walkers": 16},
    "reinforce": {"considered": 256, "policies": 2, "updates": 3},
    "sa": {"chains": 32, "steps": 8},
    "topk": {"epsilon": 0.2},
}
SMALL = (64, 64, 128), (128, 64, 64)


def made(seam: str, name: str, **options: Any) -> Any:
    return resolve(seam, name)(**OPTIONS.get(name, {}) | options)


def registered(seam: str, kind: type, *, those: bool) -> list[str]:
    """The names of the classes that are of a kind, or of those that are not."""
    return [name for name in REGISTRY[seam] if issubclass(resolve(seam, name), kind) is those]


class TestSearcher(SearcherTestCase):
    @pytest.fixture(params=list(REGISTRY["search"]))
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
    @pytest.fixture(params=registered("sampler", Synthesiser, those=False))
    def sampler(self, request: pytest.FixtureRequest) -> Sampler:
        return made("sampler", request.param)


class TestSynthesiser(SynthesiserTestCase):
    @pytest.fixture(params=registered("sampler", Synthesiser, those=True))
    def sampler(self, request: pytest.FixtureRequest) -> Sampler:
        return made("sampler", request.param)
