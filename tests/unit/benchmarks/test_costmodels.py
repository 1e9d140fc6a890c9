"""The comparison of cost models tells a model from chance, on rows laid out as workers' features."""

import numpy as np

from benchmarks.costmodels import CONTROL, SHAPES, SHOWN, compare, synthetic
from costmodels.columns import WIDTH


def test_made_up_measurements_are_a_group_a_shape() -> None:
    features, labels, groups = synthetic(20)
    assert features.shape == (20 * len(SHAPES), WIDTH)
    assert len(np.unique(groups)) == len(SHAPES)
    assert labels.max() == 0


def test_every_model_and_the_control_get_the_same_figures() -> None:
    found = dict(compare(["draft", "lightgbm"], synthetic(40), seeds=1))
    assert list(found) == ["draft", "lightgbm", CONTROL]
    for figures in found.values():
        assert set(SHOWN) <= set(figures["within_task"]) & set(figures["by_task"])
    unseen = {name: figures["by_task"]["pairwise"] for name, figures in found.items()}
    assert unseen["lightgbm"] > unseen["draft"] > 0.6 > unseen[CONTROL] > 0.4
