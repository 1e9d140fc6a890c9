"""Every extractor of the package keeps the contract, on made-up sketches and on TVM's."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from mallorn.core.registry import RESEARCH_NAMES, resolve
from mallorn.costmodels.views import VIEWS
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.features.feature_extractor import Extractor
from tests.kits.extractors import MADE_UP, ExtractorTestCase
from tests.unit.features.sketches import PRODUCT_WORK, REAL, product

NAMES = [*RESEARCH_NAMES["features"]]


class TestEveryExtractor(ExtractorTestCase):
    @pytest.fixture(params=NAMES)
    def make_extractor(self, request: pytest.FixtureRequest) -> Callable[[], Extractor]:
        kind: Callable[[], Extractor] = resolve("features", request.param)
        return kind

    @pytest.fixture
    def sketches(self) -> Mapping[str, Sketch]:
        return {sketch.key: sketch for sketch in (*MADE_UP, *REAL)}


@pytest.mark.parametrize("name", NAMES)
def test_an_extractor_is_registered_under_its_views_name(name: str) -> None:
    assert resolve("features", name).view is VIEWS[name]


@pytest.mark.parametrize("name", NAMES)
def test_sketches_that_differ_in_one_step_are_told_apart(name: str) -> None:
    sketches = {sketch.key: sketch for sketch in (product("l20"), product("l19"))}
    decisions = (4, 2, 2, 2, 8, 2, 2, 2, 12, 4, 1)
    same = [Candidate(key, decisions) for key in sketches]
    first, second = resolve("features", name)().extract(sketches, PRODUCT_WORK, same)
    assert not np.array_equal(first, second)
