"""The order of pairs beside cases worked out by hand."""

import math

from mallorn.costmodels.metrics import compare_pairs, pairwise_accuracy
from tests.unit.costmodels.synthetic import ids, vector


def test_pairwise_accuracy_counts_pairs_within_groups() -> None:
    truth, groups = vector(0, -1, 0, -5), ids(1, 1, 2, 2)
    assert pairwise_accuracy(vector(2, 1, -7, -8), truth, groups) == 1.0
    assert pairwise_accuracy(vector(1, 2, -7, -8), truth, groups) == 0.5
    assert pairwise_accuracy(vector(1, 1, -7, -8), truth, groups) == 0.75


def test_pairs_whose_labels_tie_are_skipped_and_counted() -> None:
    groups = ids(1, 1, 1)
    assert compare_pairs(vector(3, 2, 1), vector(0, 0, -1), groups) == (1.0, 2, 1)
    nothing = compare_pairs(vector(3, 2, 1), vector(0, 0, 0), groups)
    assert math.isnan(nothing.accuracy)
    assert nothing[1:] == (0, 3)
