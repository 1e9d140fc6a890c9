"""Rows are frozen with their lowered views before a model sees them, and what is frozen stays."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.costmodels.freeze import freeze
from benchmarks.costmodels.rows import load
from mallorn.core.errors import Conflict
from mallorn.costmodels.views import VIEWS
from mallorn.workers.round.feature_lookup import FeatureRows
from mallorn_research.pretraining.training_data import TaskData
from tests.fixtures.filled_dataset import Filled

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


LOWEST = 15  # decisions that come to more cannot be lowered


class Lowered:
    """Stands for the compiler: the first statement of a candidate says its decisions."""

    def compute_features(self, task: TaskData, view: str) -> FeatureRows:
        rows = np.zeros((len(task.candidates), VIEWS[view].width), dtype=np.float32)
        rows[:, 0] = 1
        rows[:, 1] = [sum(candidate.decisions) for candidate in task.candidates]
        return FeatureRows(rows, rows[:, 1] < LOWEST)


@pytest.fixture
def out(enough: Filled, tmp_path: Path) -> Path:
    freeze(enough.database, Lowered(), tmp_path / "out", "costmodels", ["statements"])
    return tmp_path / "out"


def test_what_was_frozen_is_enough_to_compare(out: Path) -> None:
    bench = load(str(out), least_rows=5)
    assert bench.training_data.snapshot == "costmodels"
    assert 20 < bench.training_data.rows < 45
    assert (bench.rows("statements").features[:, 1] < LOWEST).all()
    np.testing.assert_array_equal(bench.rows("statements").labels, bench.plain.labels)
    (network,) = bench.training_data.networks.values()
    assert set(network) == {"w0", "w1"}


def test_rows_that_come_later_are_not_in_it(filled: Filled, out: Path) -> None:
    before = load(str(out), 5).fingerprint
    filled.closed_round(filled.ok(0, 1.0))
    freeze(filled.database, Lowered(), out, "costmodels", ["statements"])
    assert load(str(out), 5).fingerprint == before


def test_a_place_that_holds_other_rows_is_refused(filled: Filled, out: Path) -> None:
    filled.closed_round(filled.ok(0, 1.0))
    with pytest.raises(Conflict, match="holds the rows costmodels, not later") as caught:
        freeze(filled.database, Lowered(), out, "later", ["statements"])
    assert caught.value.hint
