"""The comparison of cost models tells a model from chance, on rows laid out as workers' features."""

import numpy as np
import pytest

from benchmarks.costmodels import CONTROL, SHAPES, SHOWN, able, compare, made_up
from costmodels.columns import WIDTH
from workers.lessons.views import rows_for


def test_made_up_measurements_are_a_task_a_shape() -> None:
    rows = rows_for(made_up(20).tasks, "decisions")
    assert rows.features.shape == (20 * len(SHAPES), WIDTH)
    assert len(np.unique(rows.groups)) == len(rows.workloads) == len(SHAPES)
    assert rows.labels.max() == 0


def test_every_model_and_the_control_get_the_same_figures() -> None:
    lessons = made_up(40)
    halves = {"small": {"256x256x256": 1, "96x384x192": 2}, "large": {"1024x64x256": 1}}
    found = dict(
        compare(["draft", "lightgbm"], lambda view: rows_for(lessons.tasks, view), seeds=1, networks=halves)
    )
    assert list(found) == ["draft", "lightgbm", CONTROL]
    for figures in found.values():
        for split in ("within_task", "by_task", "by_network"):
            assert set(SHOWN) <= set(figures[split])
    unseen = {name: figures["by_task"]["pairwise"] for name, figures in found.items()}
    assert unseen["lightgbm"] > unseen["draft"] > 0.6 > unseen[CONTROL] > 0.4


def test_models_that_need_a_compiler_are_left_out_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(able(["static", "xgboost"])) == ["xgboost"]
    assert "static is left out" in capsys.readouterr().out
