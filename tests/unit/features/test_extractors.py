"""Every registered extractor keeps the contract, on made-up sketches and on TVM's."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from mallorn.core.registry import REGISTRY, list_names, locations, resolve
from mallorn.costmodels.views import DECISIONS, VIEWS
from mallorn.searchers.space import Sketch
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.workers.features.feature_extractor import Extractor
from tests.kits.extractors import MADE_UP, ExtractorTestCase
from tests.unit.features.sketches import REAL


class TestEveryExtractor(ExtractorTestCase):
    @pytest.fixture(params=REGISTRY["features"])
    def make_extractor(self, request: pytest.FixtureRequest) -> Callable[[], Extractor]:
        kind: Callable[[], Extractor] = resolve("features", request.param)
        return kind

    @pytest.fixture
    def sketches(self) -> Mapping[str, Sketch]:
        return {sketch.key: sketch for sketch in (*MADE_UP, *REAL)}


@pytest.mark.parametrize("name", REGISTRY["features"])
def test_an_extractor_is_registered_under_its_views_name(name: str) -> None:
    assert resolve("features", name).view is VIEWS[name]


def test_every_declared_view_has_a_line_in_the_registry() -> None:
    lowered = {view.name for view in VIEWS.values() if view.lowered}
    assert lowered == locations("lowered_features").keys()
    assert VIEWS.keys() - lowered == {*list_names("features")}


def test_the_view_of_decisions_is_what_searchers_see() -> None:
    space = SyntheticSpace()
    drawn = space.sample(np.random.default_rng(0), 20)
    rows = resolve("features", DECISIONS.name)().extract(space.by_key, (8.0, 8.0, 8.0), drawn)
    np.testing.assert_array_equal(rows, space.features(drawn))
