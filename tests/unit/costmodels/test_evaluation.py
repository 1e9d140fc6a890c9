"""What a model was worth on a split, beside a case worked out by hand."""

import math

import numpy as np
import pytest

from mallorn_research.costmodels.evaluation import compute_metrics

# Two tasks: times 1, 2, 4 and times 1, 4. The first is scored in order, the second upside down.
TRUTH = np.log(np.array([1, 1 / 2, 1 / 4, 1, 1 / 4], dtype=np.float32))
SCORES = np.log(np.array([1, 1 / 2, 1 / 2.0001, 1 / 8, 1], dtype=np.float32))
GROUPS = np.array([7, 7, 7, 9, 9], dtype=np.int64)


def test_a_split_is_judged_by_pairs_and_by_tasks() -> None:
    found = compute_metrics(SCORES, np.ones_like(SCORES), TRUTH, GROUPS)
    assert found.pairwise == pytest.approx(3 / 4)
    assert found.pairwise_task == pytest.approx(1 / 2)
    assert found.top_recall == pytest.approx(1 / 2)
    assert math.isnan(found.top_pairwise)
