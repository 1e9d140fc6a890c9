"""What the fleet did lately, over HTTP."""

from typing import Any

from sqlalchemy import select, update

from mallorn.core.states import StageKind
from mallorn.db.repositories.workers import StageRuns, Workers
from mallorn.db.tables import Round, StageRun, Worker
from tests.fixtures.coordinator import Coordinator, OwnedRows


def activity(coordinator: Coordinator, **params: Any) -> dict[str, Any]:
    answer = coordinator.http.get("/fleet/activity", params=params)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def run_round(rows: OwnedRows, workload: str = "w0") -> int:
    """A round of one valid and one failed trial, 250 ms on the device together."""
    return rows.closed_round(rows.ok(0, run_ms=150.0), rows.failed(1, run_ms=100.0), workload=workload)


def test_a_round_is_shown_with_who_ran_it_and_what_came_of_it(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    round_id = run_round(owned)
    (stint,) = activity(coordinator)["rounds"]
    assert (stint["round_id"], stint["worker"], stint["state"]) == (round_id, "w", "done")
    assert (stint["trials"], stint["failures"], stint["measuring_sec"]) == (2, 1, 0.25)
    assert (stint["job_id"], stint["task_index"]) == (owned.job_id, 0)
    assert stint["started_at"] <= stint["finished_at"]


def test_a_running_round_has_no_end_and_a_queued_one_is_only_counted(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    owned.claimed_round("w0")
    owned.write(lambda session: owned.add_round(session, "w1"))
    found = activity(coordinator)
    (stint,) = found["rounds"]
    assert (stint["finished_at"], stint["trials"]) == (None, 0)
    assert found["queued_rounds"] == 1
    assert found["jobs"] == {"tuning": 1}


def test_another_owners_round_keeps_its_names_to_itself(coordinator: Coordinator, owned: OwnedRows) -> None:
    run_round(OwnedRows(coordinator.database, owner="eve"))
    (stint,) = activity(coordinator)["rounds"]
    assert [stint[name] for name in ("job_id", "job_name", "task_index", "task_name")] == [None] * 4
    assert stint["worker"] == "w"


def test_what_ended_before_the_window_is_left_out(coordinator: Coordinator, owned: OwnedRows) -> None:
    old, new = run_round(owned), run_round(owned, "w1")
    past = {"started_at": Round.started_at - 7200, "finished_at": Round.finished_at - 7200}
    owned.write(lambda session: session.execute(update(Round).where(Round.id == old).values(past)))
    assert [stint["round_id"] for stint in activity(coordinator)["rounds"]] == [new]
    assert len(activity(coordinator, minutes=180)["rounds"]) == 2


def begin(rows: OwnedRows, kind: StageKind = StageKind.IMPORT, worker: str = "w") -> int:
    rows.write(lambda session: Workers(session).record_seen(worker, "host", {}))
    return rows.write(lambda session: StageRuns(session).begin(rows.job_id, kind, worker))


def test_what_is_no_round_is_shown_with_who_did_it(coordinator: Coordinator, owned: OwnedRows) -> None:
    run_id = begin(owned, StageKind.FINISH)
    (running,) = activity(coordinator)["stages"]
    assert (running["kind"], running["worker"], running["finished_at"]) == ("finish", "w", None)
    assert (running["job_id"], running["job_name"]) == (owned.job_id, "mlp")
    owned.write(lambda session: StageRuns(session).end(run_id))
    (ended,) = activity(coordinator)["stages"]
    assert ended["started_at"] <= ended["finished_at"]


def test_what_a_dead_worker_left_open_ended_when_it_was_last_seen(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    begin(owned, worker="dead")
    silent = update(Worker).values(last_seen=Worker.last_seen - 600)
    owned.write(lambda session: session.execute(silent))
    (found,) = activity(coordinator)["stages"]
    seen_sec = owned.read(lambda session: session.scalars(select(Worker.last_seen)).one())
    assert found["finished_at"] == seen_sec


def test_other_owners_stages_and_old_ones_keep_to_themselves(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    old = begin(owned)
    owned.write(lambda session: StageRuns(session).end(old))
    past = {"started_at": StageRun.started_at - 7200, "finished_at": StageRun.finished_at - 7200}
    owned.write(lambda session: session.execute(update(StageRun).values(past)))
    begin(OwnedRows(coordinator.database, owner="eve"))
    (stage,) = activity(coordinator)["stages"]
    assert (stage["job_id"], stage["job_name"]) == (None, None)
    assert len(activity(coordinator, minutes=180)["stages"]) == 2


def test_an_endless_window_is_refused(coordinator: Coordinator) -> None:
    for minutes in ("0", "inf", "1e9"):
        assert coordinator.http.get("/fleet/activity", params={"minutes": minutes}).status_code == 422
