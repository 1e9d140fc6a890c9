"""Models that stand on the draft are made for a machine, as the draft is."""

import numpy as np

from mallorn.core.registry import resolve
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.costmodels.analytic_models import Draft
from mallorn.costmodels.base import CostModel
from mallorn.searchers.synthetic_space import SyntheticSpace

SPACE = SyntheticSpace()


def test_what_stands_on_it_is_made_for_a_machine() -> None:
    machine = assume_typical_cpu(cores=5, lanes=4)
    features = SPACE.features(SPACE.sample(np.random.default_rng(0), 20))
    model: CostModel = resolve("cost_model", "residual").made_for(machine)
    np.testing.assert_array_equal(model.predict(features).mean, Draft(machine).predict(features).mean)
