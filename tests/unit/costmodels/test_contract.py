"""Every registered cost model keeps its contract; those that need torch do so in tests/neural."""

import pytest

from tests.fixtures.cost_models import RegisteredModelTestCase, registered


@pytest.mark.parametrize("name", registered(torch=False))
class TestCostModel(RegisteredModelTestCase):
    """The kit's tests, for each."""
