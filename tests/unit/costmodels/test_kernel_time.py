"""`kernel-time`: a modelled time that measurements correct, within tasks and across them."""

import numpy as np
from scipy.stats import spearmanr

from mallorn.costmodels.views import KERNELS
from mallorn.costmodels.xgboost_models import KernelTime

TASKS, ROWS = 6, 40


def made_up_rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of tasks whose kernels take the modelled time and, as column 3 says, more. Each
    task has an offset of its own, as if its machine's limit were wrong by a factor."""
    rng = np.random.default_rng(seed)
    rows = rng.random((TASKS * ROWS, KERNELS.width)).astype(np.float32)
    rows[:, -1] *= 4
    groups = np.repeat(np.arange(TASKS), ROWS)
    log_time = np.log(2) * rows[:, -1] + 2 * rows[:, 3] + rng.normal(0, 2, TASKS)[groups]
    best = np.array([log_time[groups == group].min() for group in range(TASKS)])
    return rows, (best[groups] - log_time).astype(np.float32), groups.astype(np.int64)


def test_it_ranks_by_the_modelled_time_before_there_are_measurements() -> None:
    rows, _, _ = made_up_rows()
    assert (np.argsort(-KernelTime().predict(rows).mean) == np.argsort(rows[:, -1])).all()


def test_rows_of_other_tasks_correct_it_whatever_their_limits() -> None:
    rows, labels, groups = made_up_rows()
    known, own = groups > 0, groups == 0
    untaught = spearmanr(KernelTime().predict(rows[own]).mean, labels[own]).statistic
    model = KernelTime()
    model.fit(rows[known], labels[known], groups[known], seed=0)
    taught = spearmanr(model.predict(rows[own]).mean, labels[own]).statistic
    assert taught > untaught + 0.05
    assert taught > 0.9
    again = KernelTime.load(model.save()).predict(rows[own])
    np.testing.assert_array_equal(again.mean, model.predict(rows[own]).mean)
