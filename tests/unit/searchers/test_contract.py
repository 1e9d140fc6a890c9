"""Every registered searcher and sampler keeps its contract: whoever registers one has its kit here."""

from typing import Any

import pytest

from mallorn.core.registry import REGISTRY, resolve
from mallorn.searchers.base import Searcher
from mallorn.searchers.sampler import Sampler
from mallorn.searchers.testing import SearcherTestCase
from tests.kits.samplers import SamplerTestCase

# A round of their usual size takes long; and topk explores hardly ever.
OPTIONS: dict[str, dict[str, Any]] = {
    "evolutionary": {"population": 256, "generations": 3},
    "ga": {"population": 256, "generations": 3},
    "portfolio": {"arms": ("evolutionary", "random")},
    "reinforce": {"considered": 256, "policies": 2, "updates": 3},
    "sa": {"chains": 32, "steps": 8},
    "topk": {"epsilon": 0.2},
}


def made(seam: str, name: str, **options: Any) -> Any:
    return resolve(seam, name)(**OPTIONS.get(name, {}) | options)


class TestSearcher(SearcherTestCase):
    @pytest.fixture(params=REGISTRY["search"])
    def searcher(self, request: pytest.FixtureRequest) -> Searcher:
        return made("search", request.param)


class TestSampler(SamplerTestCase):
    @pytest.fixture(params=REGISTRY["sampler"])
    def sampler(self, request: pytest.FixtureRequest) -> Sampler:
        return made("sampler", request.param)
