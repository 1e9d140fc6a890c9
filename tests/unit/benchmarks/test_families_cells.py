"""A finished cell holds what the report needs, read from the service."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.cells import Cells
from benchmarks.families import _cells, _figures, _is_measured
from benchmarks.families_report import GROUPINGS, Cell, totals
from db.repositories.job_events_and_warnings import Events
from mallorn.client import Client
from mallorn.core.errors import InvalidRequest
from mallorn.core.values.event import FamilyChangedEvent
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, run_round


def test_figures_are_trials_in_order_with_seconds_since_the_first_round(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    run_round(owned, "w0", [30.0, None], FIRST_PASS)
    run_round(owned, "w1", [5.0], FIRST_PASS)
    moved = FamilyChangedEvent(task=0, name="w0", old="", new="x", why="")
    owned.write(lambda session: Events(session).append(owned.job_id, moved))
    with Client(coordinator.url) as api:
        job = api.job(owned.job_id)
        job.cancel()
        found = _figures(job, list(api.records(job=job.id))[::-1])
    assert [(task, latency_us) for _, task, latency_us in found["trials"]] == [(0, 30.0), (0, None), (1, 5.0)]
    assert all(0 <= seconds <= found["tuning_sec"] for seconds, _, _ in found["trials"])
    assert totals(found, {0, 1})[-1][1] == 30.0 + 2 * 5.0
    assert [row["trials"] for row in found["rounds"]] == [2, 1]
    assert [move["to"] for move in found["moves"]] == ["x"]
    assert json.loads(json.dumps(found)) == found


def test_groupings_take_turns_at_being_first() -> None:
    cells = list(_cells(Path("models/m.onnx"), 4))
    assert {cell.grouping for cell in cells[::4]} == set(GROUPINGS)
    assert len({cell.name for cell in cells}) == 16


def test_a_finished_cell_is_not_measured_again_nor_mixed_with_other_budgets(tmp_path: Path) -> None:
    args = Namespace(raw=tmp_path, trials_per_task=48)
    cells, cell = Cells(tmp_path), Cell("m", 0, "none")
    assert not _is_measured(args, cells, cell)
    cells.keep(cell.name, {"trials_per_task": 48})
    assert _is_measured(args, cells, cell)
    with pytest.raises(InvalidRequest, match="48 trials a task"):
        _is_measured(Namespace(raw=tmp_path, trials_per_task=64), cells, cell)
