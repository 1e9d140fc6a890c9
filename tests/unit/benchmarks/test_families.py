"""Groupings compared: what a finished cell holds; trials and seconds to 1.05x of the best of all runs."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cells import Cells
from benchmarks.families import _cells, _figures, _is_measured
from benchmarks.families_report import GROUPINGS, Cell, lines, report, totals
from mallorn.client import Client
from mallorn.core.errors import InvalidRequest
from mallorn.core.values.event import FamilyChangedEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, run_round


def test_figures_are_trials_in_order_with_seconds_since_the_first_round(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    run_round(owned, "w0", [30.0, None], FIRST_PASS)
    run_round(owned, "w1", [5.0], FIRST_PASS)
    moved = FamilyChangedEvent(task=0, name="w0", old="", new="x", reason="")
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


def cell(grouping: str, *latencies_us: float | None, seed: int = 0) -> dict[str, Any]:
    """Two tasks in turn, a trial a second; the first counts twice."""
    tasks = [{"index": at, "weight": 2 - at, "family": f"{grouping}:x"} for at in range(2)]
    trials = [[float(at + 1), at % 2, latency_us] for at, latency_us in enumerate(latencies_us)]
    run = {"tasks": tasks, "trials": trials, "moves": [], "rounds": []}
    return {"model": "m", "seed": seed, "grouping": grouping, **run}


def four(seed: int = 0, **runs: tuple[float | None, ...]) -> list[dict[str, Any]]:
    return [cell(grouping, *runs.get(grouping, (10, 10, 5, 5)), seed=seed) for grouping in GROUPINGS]


def test_a_total_is_weighted_and_unknown_until_every_task_has_a_time() -> None:
    curve = totals(cell("none", None, 4, 3, 9), {0, 1})
    assert curve == [(1, float("inf")), (2, float("inf")), (3, 10), (4, 10)]


def test_the_goal_is_near_the_best_of_all_runs_of_the_model() -> None:
    result = report(four(dynamic=(10, 10, 5, 4)))["models"]["m"]
    assert (result["best_us"], result["goal_us"]) == (14, pytest.approx(14.7))
    assert {run["grouping"]: run["reached"] for run in result["runs"]}["dynamic"]
    assert sum(run["reached"] for run in result["runs"]) == 1


def test_a_run_that_never_gets_there_counts_as_twice_what_it_spent() -> None:
    found = report(four(structure=(5, 5)) + four(seed=1, structure=(9, 9)))
    runs = {(run["seed"], run["grouping"]): run for run in found["models"]["m"]["runs"]}
    assert (runs[0, "structure"]["trials"], runs[1, "structure"]["trials"]) == (2, 4)
    assert found["shares_of_none"]["structure"]["trials"] == pytest.approx((2 / 4 * 4 / 4) ** 0.5)
    assert (found["best"], found["headline"]) == ("structure", found["shares_of_none"]["structure"]["trials"])


def test_a_task_that_some_run_has_no_time_of_is_left_out_of_all() -> None:
    result = report(four(operator=(10, None, 5, None)))["models"]["m"]
    assert (result["tasks"], result["compared_tasks"], result["best_us"]) == (2, 1, 10)
    assert all(run["reached"] for run in result["runs"])


def test_it_tells_how_well_models_ordered_fresh_batches() -> None:
    cells = four()
    cells[0]["rounds"] = [{"stats": {"rank_own": share}} for share in (None, 0.4, 0.6, 0.7)]
    found = report(cells)
    assert found["fresh_batches_in_order"] == {"batches": 3, "median": 0.6}
    assert "60.0% of the pairs of a fresh batch" in lines(found)[-2]
