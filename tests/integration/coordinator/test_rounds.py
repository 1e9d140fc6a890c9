"""The decision log: why each round was made, what was expected of it, what it brought."""

from typing import Any

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.states import RoundState
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.rounds import Rounds
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.database import BOTH
from tests.fixtures.decision_log import FIRST_PASS, looked_ahead, open_round, run_round


@pytest.fixture
def log(coordinator: Coordinator, owned: OwnedRows) -> Any:
    """Asks for the job's rounds; keyword arguments are the query."""

    def ask(**query: Any) -> list[dict[str, Any]]:
        answer = coordinator.http.get(f"/jobs/{owned.job_id}/rounds", params=query)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["items"])

    return ask


def test_a_round_tells_what_was_known_expected_and_found(log: Any, owned: OwnedRows) -> None:
    run_round(owned, "w1", [40.0, 30.0], FIRST_PASS)
    run_round(owned, "w1", [25.0, None], looked_ahead(24.0, 29.0))
    second, first = log()
    assert (first["policy"], first["why"], first["forecast"], first["is_in_interval"]) == (
        "first-pass",
        "first visit: expects 9 us",
        None,
        None,
    )
    assert (first["previous_best_us"], first["best_us"], first["gain_us"]) == (None, 30.0, None)
    assert (second["index"], second["task_index"], second["task_name"], second["weight"]) == (1, 1, "w1", 2)
    assert (second["size"], second["trials"], second["failures"]) == (2, 2, 1)
    assert (second["policy"], second["score"], second["why"]) == ("dynatune", 2.5, "worth most")
    assert second["forecast"]["low_us"] == 24.0
    assert (second["forecast"]["gain_us"], second["forecast"]["gain_probability"]) == (1.5, 0.4)
    assert (second["previous_best_us"], second["best_us"], second["is_in_interval"]) == (30.0, 25.0, True)
    assert second["gain_us"] == 2 * (30.0 - 25.0)
    assert (second["worker"], second["searcher"], second["state"]) == ("w", "evolutionary", "done")
    assert second["seconds"] >= 0
    assert second["reason"]["best_us"] == 29.0


def test_a_round_without_progress_gained_nothing(log: Any, owned: OwnedRows) -> None:
    run_round(owned, "w0", [30.0], FIRST_PASS)
    run_round(owned, "w0", [50.0], looked_ahead(20.0, 29.0))
    assert (log()[0]["gain_us"], log()[0]["is_in_interval"]) == (0.0, False)


def test_later_rounds_do_not_change_what_an_earlier_one_knew(log: Any, owned: OwnedRows) -> None:
    for latency_us in (30.0, 20.0, 10.0):
        run_round(owned, "w0", [latency_us], FIRST_PASS)
    assert [row["previous_best_us"] for row in log()] == [20.0, 30.0, None]


def test_a_forecast_is_not_judged_by_a_round_that_was_cut_short_or_brought_nothing(
    log: Any, owned: OwnedRows
) -> None:
    run_round(owned, "w0", [25.0], looked_ahead(24.0, 29.0), RoundState.POISON)
    run_round(owned, "w0", [None, None], looked_ahead(24.0, 29.0))
    open_round(owned, "w0", looked_ahead(24.0, 29.0))
    waiting, failed, lost = log()
    assert [row["is_in_interval"] for row in (waiting, failed, lost)] == [None, None, None]
    assert (waiting["state"], waiting["seconds"], waiting["trials"]) == ("queued", None, 0)
    assert (failed["best_us"], failed["failures"]) == (None, 2)
    assert lost["error"].startswith("worker died")


def test_a_candidate_that_computes_wrong_results_was_no_gain(log: Any, owned: OwnedRows) -> None:
    run_round(owned, "w0", [30.0], FIRST_PASS)
    run_round(owned, "w0", [25.0, 1.0], looked_ahead(24.0, 29.0))
    refuted = owned.failed(1, Outcome.WRONG_RESULT)
    owned.measured_round(refuted)
    assert (log()[1]["best_us"], log()[1]["gain_us"]) == (25.0, 5.0)


@BOTH
def test_a_round_names_the_version_of_the_model_it_searched_with(log: Any, owned: OwnedRows) -> None:
    new = NewCostModel("matmul", owned.target_id, "xgboost", 0, 0, {}, b"")
    versions = [owned.write(lambda session: CostModels(session).add(new).id) for _ in range(2)]
    run_round(owned, "w0", [30.0], FIRST_PASS)
    run_round(owned, "w0", [20.0], FIRST_PASS, cost_model_id=versions[1])
    assert [row["cost_model_version"] for row in log()] == [2, None]


@BOTH
def test_rounds_are_paged_in_both_orders_and_by_task(
    log: Any, coordinator: Coordinator, owned: OwnedRows
) -> None:
    for workload in ("w0", "w1", "w0", "w1", "w0"):
        run_round(owned, workload, [5.0], FIRST_PASS)

    def indices(**query: Any) -> list[int]:
        seen: list[int] = []
        cursor: str | None = None
        while True:
            params = {"limit": 2, **({"cursor": cursor} if cursor else {}), **query}
            body = coordinator.http.get(f"/jobs/{owned.job_id}/rounds", params=params).json()
            seen += [row["index"] for row in body["items"]]
            if (cursor := body["next_cursor"]) is None:
                return seen

    assert indices() == [4, 3, 2, 1, 0]
    assert indices(order="oldest") == [0, 1, 2, 3, 4]
    assert indices(task=0) == [4, 2, 0]
    assert indices(task=1, order="oldest") == [1, 3]


def test_a_task_or_an_order_that_is_not_there_is_refused(coordinator: Coordinator, owned: OwnedRows) -> None:
    path = f"/jobs/{owned.job_id}/rounds"
    missing = coordinator.http.get(path, params={"task": 7})
    assert (missing.status_code, missing.json()["hint"]) == (404, f"mallorn jobs tasks {owned.job_id}")
    assert coordinator.http.get(path, params={"order": "random"}).status_code == 422
    assert coordinator.http.get(path, params={"cursor": "!"}).status_code == 422


def test_a_round_that_was_handed_back_waits_again(log: Any, owned: OwnedRows) -> None:
    _, hold = owned.claimed_round("w0")
    owned.write(lambda session: Rounds(session).close(hold, RoundState.QUEUED))
    (row,) = log()
    assert (row["state"], row["worker"], row["seconds"], row["why"]) == ("queued", None, None, "")


def test_a_round_that_a_base_proposed_says_whether_it_was_the_first(log: Any, owned: OwnedRows) -> None:
    new = NewCostModel("base:matmul", owned.target_id, "xgboost", 0, 8, {}, b"model")
    base = owned.write(lambda session: CostModels(session).add(new).id)
    for cost_model_id in (base, base, None):
        run_round(owned, "w0", [30.0], FIRST_PASS, cost_model_id=cost_model_id)
    assert [row["proposal"] for row in log(order="oldest")] == [
        "first round proposed by base:matmul/xgboost@1",
        "proposed by base:matmul/xgboost@1",
        None,
    ]
