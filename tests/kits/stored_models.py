"""The conformance kit of cost models that are stored."""

from collections.abc import Callable

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.testing import CostModelTestCase, assert_same


class StoredModelTestCase(CostModelTestCase):
    """Also checks that damaged bytes and unusable rows are refused with a sentence."""

    @pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1.0])
    def test_labels_that_are_none_are_refused(
        self, make_model: Callable[[], CostModel], wrong: float
    ) -> None:
        features, labels, groups = self.data(40, seed=0)
        labels[7] = wrong
        with pytest.raises(InvalidRequest, match=f"1 of 40 labels .* is {wrong:g}") as raised:
            make_model().fit(features, labels, groups, seed=0)
        assert raised.value.hint

    def test_rows_without_labels_are_refused(self, make_model: Callable[[], CostModel]) -> None:
        features, labels, groups = self.data(40, seed=0)
        with pytest.raises(InvalidRequest, match="there are 40 rows but 39 labels and 40 groups"):
            make_model().fit(features, labels[:-1], groups, seed=0)

    def test_refused_rows_leave_the_model_as_it_was(self, fitted: CostModel) -> None:
        features, labels, groups = self.data(40, seed=0)
        model = type(fitted).load(fitted.save())
        with pytest.raises(InvalidRequest):
            model.fit(features, np.full_like(labels, np.nan), groups, seed=0)
        assert_same(model.predict(features), fitted.predict(features))

    def test_bytes_cut_short_are_refused(self, fitted: CostModel) -> None:
        blob = fitted.save()
        for length in {0, 3, len(blob) // 2, len(blob) - 1}:
            with pytest.raises(InvalidRequest, match="cannot be read") as raised:
                type(fitted).load(blob[:length])
            assert raised.value.hint

    def test_bytes_of_something_else_are_refused(self, fitted: CostModel) -> None:
        for blob in (b"no model at all", b"PK\x03\x04 no archive either", bytes(range(256)) * 40):
            with pytest.raises(InvalidRequest, match="cannot be read"):
                type(fitted).load(blob)
