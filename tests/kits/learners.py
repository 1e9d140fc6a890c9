"""What holds for every model that learns trees."""

from collections.abc import Callable

import numpy as np

from mallorn.costmodels.base import CostModel
from mallorn.costmodels.testing import easy_data


class LearnerTestCase:
    """Parametrise it with `make`, which returns a new model."""

    def test_one_group_of_labels_all_alike_is_scored_alike(self, make: Callable[[], CostModel]) -> None:
        features, labels, groups = easy_data(50, seed=0)
        model = make()
        model.fit(features, np.full_like(labels, -1.5), np.zeros_like(groups), seed=0)
        np.testing.assert_allclose(model.predict(features).mean, -1.5, atol=0.05)

    def test_another_seed_is_another_model(self, make: Callable[[], CostModel]) -> None:
        data = easy_data(200, seed=0)
        one, other = make(), make()
        one.fit(*data, seed=1)
        other.fit(*data, seed=2)
        assert not np.array_equal(one.predict(data[0]).mean, other.predict(data[0]).mean)
