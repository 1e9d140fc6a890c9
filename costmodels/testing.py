"""Conformance tests of cost models: subclass `CostModelTestCase`, define `make_model`."""
# ruff: noqa: S101

import pickle  # noqa: TID251 - to check that no model calls it
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from mallorn.costmodels.base import FAILED_LABEL, CostModel, Matrix, Prediction, Vector
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.costmodels.views import LOOPS, VIEWS

Data = tuple[Matrix, Vector, NDArray[np.int64]]

COLUMNS: Final = 24  # columns that vary
ACROSS: Final = 8  # columns that vary per line of a table
OFFSET: Final = 4  # first column of a line that varies


def easy_data(rows: int, seed: int, view: str = "decisions") -> Data:
    """Return synthetic rows, labels and groups; group ids are neither sorted nor dense."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 8, size=(rows, COLUMNS)).astype(np.float32)
    slowdown = 0.3 * np.abs(values[:, 2] - 4) + 0.2 * np.maximum(values[:, 5], values[:, 7])
    labels = np.maximum(FAILED_LABEL, -slowdown).astype(np.float32)
    labels[values[:, 9] == 7] = FAILED_LABEL
    groups = rng.choice(np.array([7, 10**12, 3]), size=rows)
    return arrange_into_view(values, view, rng), labels, groups


def arrange_into_view(values: Matrix, view: str, rng: np.random.Generator) -> Matrix:
    """Arrange values into rows of a view, with filler columns; a table line has 8 values."""
    shape = VIEWS[view].shape
    table = np.zeros((len(values), *shape), dtype=np.float32)
    if len(shape) == 1:
        table[:, :COLUMNS] = values
        return table
    used_lines = COLUMNS // ACROSS
    present = np.arange(shape[0]) < rng.integers(used_lines, shape[0] // 2, len(values))[:, None]
    table[:, :, 0] = present
    table[:, :, 2] = present * (np.arange(shape[0]) + 1)
    table[:, :used_lines, OFFSET : OFFSET + ACROSS] = values.reshape(-1, used_lines, ACROSS)
    if view == LOOPS.name:
        # A tree in preorder; every third line starts a new nest.
        parents = [0 if line % 3 == 1 else line - 1 for line in range(shape[0])]
        table[:, :, 1] = np.where(present, parents, 0)
    return table.reshape(len(values), -1)


__all__ = ["CostModelTestCase", "Data", "assert_same", "easy_data"]

_fitted: dict[tuple[type, Callable[[], CostModel]], CostModel] = {}


def assert_same(left: Prediction, right: Prediction) -> None:
    np.testing.assert_array_equal(left.mean, right.mean)
    np.testing.assert_array_equal(left.std, right.std)


class CostModelTestCase:
    """Tests of CostModel's contract; `make_model` of a subclass makes an untrained model."""

    learns = True  # False for a baseline such as the random model
    view = "decisions"  # view that the model reads
    accuracy = 0.85  # share of pairs of new easy rows that the model must rank correctly

    @pytest.fixture
    def make_model(self) -> Callable[[], CostModel]:
        raise NotImplementedError

    @pytest.fixture
    def fitted(self, make_model: Callable[[], CostModel]) -> CostModel:
        """Return a model fit once for all tests of a class; tests must not change it."""
        kind = type(self), make_model
        if kind not in _fitted:
            _fitted[kind] = self._fit(make_model(), self.data(300, seed=0))
        return _fitted[kind]

    def data(self, rows: int, seed: int) -> Data:
        return easy_data(rows, seed, self.view)

    @staticmethod
    def _fit(model: CostModel, data: Data, seed: int = 5) -> CostModel:
        model.fit(*data, seed=seed)
        return model

    @pytest.mark.parametrize("rows", [0, 1, 200])
    def test_predictions_are_finite_floats_one_a_row(self, fitted: CostModel, rows: int) -> None:
        features, _, _ = self.data(200, seed=1)
        for values in fitted.predict(features[:rows]):
            assert values.shape == (rows,)
            assert values.dtype == np.float32
            assert np.isfinite(values).all()
        assert (fitted.predict(features[:rows]).std >= 0).all()

    @pytest.mark.parametrize("value", [0.0, -1e30, 1e30, np.nan, np.inf, -np.inf])
    def test_predict_never_fails_on_rows_of_the_right_width(self, fitted: CostModel, value: float) -> None:
        for values in fitted.predict(np.full((3, VIEWS[self.view].width), value, dtype=np.float32)):
            assert np.isfinite(values).all()

    def test_predict_works_before_any_data(self, make_model: Callable[[], CostModel]) -> None:
        features, _, _ = self.data(10, seed=1)
        mean, std = make_model().predict(features)
        assert np.isfinite(mean).all()
        assert (std > 0).all()

    def test_a_row_is_scored_alike_in_any_company(self, fitted: CostModel) -> None:
        features, _, _ = self.data(64, seed=2)
        forwards = fitted.predict(features)
        backwards = fitted.predict(np.ascontiguousarray(features[::-1]))
        np.testing.assert_array_equal(backwards.mean[::-1], forwards.mean)
        np.testing.assert_array_equal(fitted.predict(features[5:6]).std, forwards.std[5:6])

    def test_a_second_fit_gives_the_model_of_a_first_one_and_changes_no_argument(
        self, make_model: Callable[[], CostModel], fitted: CostModel
    ) -> None:
        """The same data and seed give the same model, whatever the model learned before."""
        features, _, _ = self.data(100, seed=3)
        first_data, untouched = self.data(100, seed=8), self.data(100, seed=8)
        model = self._fit(make_model(), first_data)
        for argument, copy in zip(first_data, untouched, strict=True):
            np.testing.assert_array_equal(argument, copy)
        first_mean = model.predict(features).mean
        assert_same(self._fit(model, self.data(300, seed=0)).predict(features), fitted.predict(features))
        assert not self.learns or not np.array_equal(first_mean, model.predict(features).mean)

    @pytest.mark.parametrize("rows", [0, 1, 2])
    def test_hardly_any_data_is_enough_to_fit(self, make_model: Callable[[], CostModel], rows: int) -> None:
        features, labels, groups = self.data(50, seed=5)
        model = self._fit(make_model(), (features[:rows], labels[:rows], groups[:rows]))
        assert np.isfinite(model.predict(features).mean).all()

    def test_failures_alone_are_enough_to_fit(self, make_model: Callable[[], CostModel]) -> None:
        features, labels, groups = self.data(50, seed=5)
        model = self._fit(make_model(), (features, np.full_like(labels, FAILED_LABEL), groups))
        assert np.isfinite(model.predict(features).mean).all()

    @pytest.mark.parametrize("is_fitted", [False, True], ids=["nothing", "data"])
    def test_a_loaded_model_predicts_what_the_saved_one_did(
        self, make_model: Callable[[], CostModel], fitted: CostModel, is_fitted: bool
    ) -> None:
        features, _, _ = self.data(100, seed=6)
        model = fitted if is_fitted else make_model()
        assert_same(type(model).load(model.save()).predict(features), model.predict(features))

    def test_no_pickle_is_written_or_read(self, fitted: CostModel, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: object, **kwargs: object) -> None:
            raise AssertionError(f"pickle was called with {args} {kwargs}")

        for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
            monkeypatch.setattr(pickle, name, refuse)
        type(fitted).load(fitted.save())

    def test_it_orders_what_it_has_not_seen(self, make_model: Callable[[], CostModel]) -> None:
        features, labels, groups = self.data(300, seed=7)
        model = self._fit(make_model(), self.data(600, seed=0))
        accuracy = pairwise_accuracy(model.predict(features).mean, labels, groups)
        assert accuracy > self.accuracy if self.learns else 0.4 < accuracy < 0.6

    def test_it_says_which_view_it_reads(self, make_model: Callable[[], CostModel]) -> None:
        assert make_model().view == self.view
        assert self.view in VIEWS
