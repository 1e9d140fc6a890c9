"""Hyperparameters are found by FLAML, alike every time; without FLAML a sentence says what to install."""

import sys

import pytest

from mallorn.core.errors import Unavailable
from mallorn.core.installation import RESEARCH, pip_install_command
from mallorn.costmodels.testing import easy_data
from mallorn_research.costmodels.automl import START, AutoML


def test_other_settings_than_the_first_are_tried_and_kept_if_better() -> None:
    pytest.importorskip("flaml")
    model = AutoML()
    model.fit(*easy_data(400, seed=0), seed=0)
    assert set(model.settings) == set(START)
    assert dict(model.settings) != START
    assert dict(AutoML.load(model.save()).settings) == dict(model.settings)


def test_without_flaml_a_fit_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flaml", None)
    with pytest.raises(Unavailable, match="not installed") as raised:
        AutoML().fit(*easy_data(100, seed=0), seed=0)
    assert pip_install_command("flaml", RESEARCH) in raised.value.hint


def test_a_stored_model_predicts_without_flaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flaml", None)
    features, labels, groups = easy_data(30, seed=0)
    model = AutoML()
    model.fit(features, labels, groups, seed=0)  # too few rows to search
    assert AutoML.load(model.save()).predict(features).mean.tolist() == model.predict(features).mean.tolist()
