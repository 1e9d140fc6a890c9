"""LightGBM scores equal labels alike, and its seed matters."""

import pytest

from mallorn.costmodels.lightgbm_models import LightGBM, LightGBMRank
from tests.kits.learners import LearnerTestCase


@pytest.mark.parametrize("make", [LightGBM, LightGBMRank])
class TestLearner(LearnerTestCase):
    """The kit's tests, for each."""
