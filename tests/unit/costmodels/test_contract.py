"""Every registered cost model keeps its contract."""

import pytest

from mallorn.core.registry import REGISTRY
from tests.fixtures.cost_models import RegisteredModelTestCase


@pytest.mark.parametrize("name", REGISTRY["cost_model"])
class TestCostModel(RegisteredModelTestCase):
    """The kit's tests, for each."""
