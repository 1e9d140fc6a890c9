"""Every cost model of the package keeps its contract; research/tests/neural tries those that need torch."""

import pytest

from research.tests.fixtures.cost_models import ResearchModelTestCase, names_of_models


@pytest.mark.parametrize("name", names_of_models(torch=False))
class TestCostModel(ResearchModelTestCase):
    """The kit's tests, for each."""
