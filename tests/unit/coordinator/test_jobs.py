"""Looking at jobs: progress, tasks, rounds, records and schedules."""

import io
import zipfile
from typing import Any

from sqlalchemy import func, select

from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, RoundState
from mallorn.core.values.event import FinishingEvent, JobEvent, RoundPlannedEvent
from mallorn.core.values.expected_gain import Outlook
from mallorn.core.values.job import SuggestedOptions
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.schedules import NewSchedule, Schedules
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.tables import Measurement
from tests.fixtures.brought import ELSEWHERE, bring
from tests.fixtures.coordinator import Coordinator, OwnedRows


def measure(owned: OwnedRows, workload: str, *latencies_us: float | None) -> None:
    """A round of trials that ended; None is a build error."""
    batch = [
        owned.failed(slot) if latency_us is None else owned.ok(slot, latency_us)
        for slot, latency_us in enumerate(latencies_us)
    ]
    owned.closed_round(*batch, workload=workload)


def test_progress_counts_trials_and_failures(coordinator: Coordinator, owned: OwnedRows) -> None:
    measure(owned, "w0", 30.0, 20.0, None)
    owned.measured_round(owned.ok(3, 10.0), workload="w1")
    progress = coordinator.http.get(f"/jobs/{owned.job_id}").json()["progress"]
    assert (progress["trials"], progress["open_candidates"]) == (4, 7)
    assert progress["failures"] == {"build_error": 1}
    assert (progress["tasks"], progress["tasks_measured"]) == (2, 1)
    assert progress["estimated_us"] is None


def test_the_estimate_is_the_weighted_sum_once_every_task_has_a_time(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    measure(owned, "w0", 30.0, 20.0)
    measure(owned, "w1", 5.0)
    progress = coordinator.http.get(f"/jobs/{owned.job_id}").json()["progress"]
    assert progress["estimated_us"] == 20.0 + 2 * 5.0


def test_the_estimate_leaves_out_what_the_first_pass_left_out(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    owned.closed_round(owned.ok(0, 20.0))
    measure(owned, "w0", 10.0)
    progress = coordinator.http.get(f"/jobs/{owned.job_id}").json()["progress"]
    assert progress["estimated_us"] == 10.0


def test_there_is_no_estimate_while_a_first_time_is_awaited(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    for latency_us in (20.0, 10.0):
        owned.closed_round(owned.ok(0, latency_us))
    measure(owned, "w1", None)
    estimate = coordinator.http.get(f"/jobs/{owned.job_id}").json()["progress"]["estimated_us"]
    assert estimate is None, "it would get worse with the time of w1"
    (awaited,) = (task.id for task in owned.read(lambda session: Tasks(session).list(owned.job_id))[1:])
    owned.write(lambda session: Tasks(session).retire({awaited: "no valid result"}))
    assert coordinator.http.get(f"/jobs/{owned.job_id}").json()["progress"]["estimated_us"] == 10.0


def test_a_job_is_judged_by_its_report_and_by_what_more_trials_would_bring(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    measure(owned, "w0", 30.0, 20.0)
    running = coordinator.http.get(f"/jobs/{owned.job_id}").json()["verdict"]
    assert (running["level"], running["next_command"]) == ("none", f"mallorn watch {owned.job_id}")
    tuned, onnxruntime = ({"median": m, "low": m - 1, "high": m + 1} for m in (400.0, 100.0))
    ahead = {"current_us": 20.0, "expected_us": 18.0, "gain": 0.013, "trials": 160}
    report = {"latency_us": {"tuned": tuned, "onnxruntime": onnxruntime}, "outlook": ahead}
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, report=report))
    owned.write(lambda session: Jobs(session).move_to_state(owned.job_id, [JobState.TUNING], JobState.DONE))
    assert coordinator.http.get("/jobs").json()["items"][0]["verdict"] == {
        "level": "poor",
        "summary": "4.0 times slower than onnxruntime (ratio 0.25, 0.25 to 0.25) after 2 trials; "
        "the next 100 trials would bring 1.3 %",
        "next_command": f"mallorn resume {owned.job_id} --auto",
        "comparison": {"level": "poor", "text": "4.0 times slower"},
    }


def test_a_job_tells_what_its_planner_expected_last(coordinator: Coordinator, owned: OwnedRows) -> None:
    def told() -> dict[str, Any] | None:
        outlook: dict[str, Any] | None = coordinator.http.get(f"/jobs/{owned.job_id}").json()["outlook"]
        return outlook

    def say(event: JobEvent) -> None:
        owned.write(lambda session: Events(session).append(owned.job_id, event))

    assert told() is None
    place = {"round": 0, "task": 0, "name": "w0", "size": 16}
    ahead = {"current_us": 20.0, "limit_us": None, "expected_us": 18.0, "gain": 0.013, "trials": 160}
    say(RoundPlannedEvent.model_validate(place | {"outlook": ahead}))
    assert told() == ahead
    owned.write(
        lambda session: Jobs(session).move_to_state(owned.job_id, [JobState.TUNING], JobState.FINISHING)
    )
    at_the_end = ahead | {"gain": 0.002, "trials": 0}
    say(FinishingEvent(reason="spent", outlook=Outlook.model_validate(at_the_end)))
    assert told() == at_the_end


def test_tasks_are_metaschedules_table(coordinator: Coordinator, owned: OwnedRows) -> None:
    measure(owned, "w1", 5.0, None)
    owned.measured_round(owned.ok(2, 3.0), workload="w1")  # a round that goes on
    waiting, measuring = coordinator.http.get(f"/jobs/{owned.job_id}/tasks").json()["items"]
    assert (waiting["latency_us"], waiting["gflops"], waiting["state"]) == (None, None, "waiting")
    assert measuring["flops"] == 1e6
    assert measuring["gflops"] == 200.0
    assert (measuring["latency_us"], measuring["weighted_latency_us"]) == (5.0, 10.0)
    assert (measuring["trials"], measuring["failures"], measuring["state"]) == (3, 1, "measuring")
    assert (measuring["family"], measuring["workload"]) == ("matmul", "w1")


def test_tasks_tell_what_stock_found_for_them_where_logs_of_it_do(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    measure(owned, "w1", 5.0)
    bring(owned, "w1", 4.0)
    bring(owned, "w0", 3.0, ELSEWHERE)
    without, beside = coordinator.http.get(f"/jobs/{owned.job_id}/tasks").json()["items"]
    assert without["stock_us"] is None
    assert (beside["stock_us"], beside["latency_us"]) == (4.0, 5.0)


def test_rounds_name_their_task_and_reason(coordinator: Coordinator, owned: OwnedRows) -> None:
    owned.write(lambda session: owned.add_round(session, "w1"))
    (row,) = coordinator.http.get(f"/jobs/{owned.job_id}/rounds").json()["items"]
    assert (row["task_index"], row["state"], row["size"]) == (1, "queued", 8)
    assert (row["reason"]["policy"], row["reason"]["forecast"], row["stats"]) == ("", None, None)


def test_a_failed_job_says_with_which_options_to_try_again(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    assert coordinator.http.get(f"/jobs/{owned.job_id}").json()["suggest"] is None
    suggest = {"input_shapes": {"x": [1, 3]}}
    owned.write(
        lambda session: Jobs(session).move_to_state(owned.job_id, [JobState.TUNING], JobState.FAILED, "no")
    )
    told = SuggestedOptions.model_validate(suggest)
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, suggest=told))
    assert coordinator.http.get(f"/jobs/{owned.job_id}").json()["suggest"] == suggest


def test_jobs_are_filtered_by_state_and_paged(coordinator: Coordinator, owned: OwnedRows) -> None:
    ids = [owned.job_id] + [coordinator.submit().json()["id"] for _ in range(2)]
    queued = coordinator.http.get("/jobs", params={"state": "queued", "limit": 1}).json()
    assert [job["id"] for job in queued["items"]] == [ids[2]]
    rest = coordinator.http.get("/jobs", params={"cursor": queued["next_cursor"]}).json()
    assert [job["id"] for job in rest["items"]] == [ids[1], ids[0]]
    assert coordinator.http.get("/jobs", params={"state": "lost"}).status_code == 422


def test_records_are_paged_and_filtered(coordinator: Coordinator, owned: OwnedRows) -> None:
    measure(owned, "w0", 30.0, None)
    measure(owned, "w1", 5.0)

    def found(**params: object) -> list[tuple[str, str]]:
        items = coordinator.http.get("/records", params=params).json()["items"]
        return [(item["workload"], item["outcome"]) for item in items]

    assert found() == [("w1", "ok"), ("w0", "build_error"), ("w0", "ok")]
    assert found(outcome="build_error", job=owned.job_id) == [("w0", "build_error")]
    assert found(workload="w1") == [("w1", "ok")]
    assert found(target='{"kind":"llvm","num-cores":4}') == []
    page = coordinator.http.get("/records", params={"limit": 2}).json()
    assert [item["workload"] for item in page["items"]] == ["w1", "w0"]
    assert found(cursor=page["next_cursor"]) == [("w0", "ok")]


def test_records_of_a_mistyped_job_are_not_an_empty_list(coordinator: Coordinator) -> None:
    assert coordinator.http.get("/records", params={"job": "typo"}).status_code == 404


def test_a_strange_cursor_is_refused(coordinator: Coordinator) -> None:
    for path in ("/jobs", "/records", "/models", "/schedules"):
        answer = coordinator.http.get(path, params={"cursor": "!"})
        assert (answer.status_code, answer.json()["error"]) == (422, "InvalidRequest")


def promote(owned: OwnedRows, slot: int, latency_us: float) -> None:
    """Measure one candidate of w0 and make a schedule of it."""
    _, hold = owned.claimed_round("w0")
    workload_id, times = owned.workloads["w0"], (latency_us,)
    with owned.database.transaction() as session:
        Measurements(session).add_trials(hold, [owned.ok(slot, latency_us)])
        Rounds(session).close(hold, RoundState.DONE)
        newest = session.scalars(select(func.max(Measurement.id))).one()
        interval = latency_us - 1, latency_us + 1
        place = workload_id, owned.target_id, owned.context_id, newest, owned.job_id
        Schedules(session).promote(NewSchedule(*place, latency_us, *interval, 1e-6, "[]", times))


def test_schedules_show_the_best_of_each_workload(coordinator: Coordinator, owned: OwnedRows) -> None:
    for slot, latency_us in enumerate((9.0, 7.0, 8.0)):
        promote(owned, slot, latency_us)
    (best,) = coordinator.http.get("/schedules", params={"workload": "w0"}).json()["items"]
    assert (best["latency_us"], best["low_us"], best["high_us"]) == (7.0, 6.0, 8.0)
    other_target = {"target": '{"kind":"llvm","num-cores":64}'}
    assert coordinator.http.get("/schedules", params=other_target).json()["items"] == []


def test_exported_logs_come_as_a_zip(coordinator: Coordinator, owned: OwnedRows) -> None:
    directory = coordinator.artifacts / "exports" / "x"
    (directory / "more").mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")
    (directory / "more" / "log.json").write_text("[1]")
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, export_uri=str(directory)))
    answer = coordinator.http.get(f"/jobs/{owned.job_id}/schedules")
    assert answer.headers["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["manifest.json", "more/log.json"]
        assert archive.read("more/log.json") == b"[1]"


def test_without_an_export_there_is_nothing_to_download_yet(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    answer = coordinator.http.get(f"/jobs/{owned.job_id}/schedules")
    assert answer.status_code == 409
    assert answer.json() == {
        "request_id": answer.headers["X-Request-ID"],
        "error": "Conflict",
        "detail": f"job {owned.job_id} has no schedules yet, it is tuning",
        "hint": f"mallorn watch {owned.job_id}",
    }


def test_another_owners_job_is_not_there(coordinator: Coordinator) -> None:
    theirs = OwnedRows(coordinator.database, "ada").job_id
    # Whoever needs no key is an admin, who sees and stops everybody's jobs, and no more.
    for path in ("tasks", "rounds", "events", "schedules"):
        assert coordinator.http.get(f"/jobs/{theirs}/{path}").status_code == 404
    assert coordinator.http.post(f"/jobs/{theirs}/resume").status_code == 404
    assert coordinator.http.get("/jobs").json()["items"] == []
    assert coordinator.submit(model_id="a" * 64).status_code == 404


def test_a_wrong_result_is_a_failure_of_its_own(coordinator: Coordinator, owned: OwnedRows) -> None:
    owned.measured_round(owned.failed(0, Outcome.WRONG_RESULT))
    progress = coordinator.http.get(f"/jobs/{owned.job_id}").json()["progress"]
    assert progress["failures"] == {"wrong_result": 1}
    assert owned.read(lambda session: Events(session).after(owned.job_id, 0)) == []
