"""Schedules over HTTP: the best of each, those they have beaten, and one with all that it does."""

import json
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from mallorn.client.coordinator_client import Client
from mallorn.core.artifact_uris import scripts_uri
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import parse_target
from mallorn.core.values.dataset import VerifiedSchedule
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.tables import Measurement, Schedule
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.schedules import promote

SCRIPTS = {"original": "before", "scheduled": "after", "trace": "steps"}


@pytest.fixture
def both(owned: OwnedRows) -> tuple[int, int]:
    """A schedule of w0 and a faster one."""
    return promote(owned, "w0", 20.0), promote(owned, "w0", 10.0, trace="[1]")


def latencies(coordinator: Coordinator, **params: Any) -> list[float]:
    answer = coordinator.http.get("/schedules", params=params)
    return [item["latency_us"] for item in answer.json()["items"]]


def test_beaten_schedules_are_shown_when_asked_for_the_fastest_first(
    coordinator: Coordinator, both: tuple[int, int]
) -> None:
    assert latencies(coordinator) == [10.0]
    assert latencies(coordinator, workload="w0", beaten=True) == [10.0, 20.0]
    assert latencies(coordinator, workload="w1", beaten=True) == []


def test_a_schedule_says_whether_its_times_are_upper_bounds(
    coordinator: Coordinator, owned: OwnedRows, both: tuple[int, int]
) -> None:
    _, fast = both
    of_fast = select(Schedule.measurement_id).where(Schedule.id == fast).scalar_subquery()
    owned.write(lambda session: Measurements(session).mark_as_bounds(0.4, Measurement.id == of_fast))
    told = coordinator.http.get("/schedules", params={"beaten": True}).json()["items"]
    assert [(each["latency_us"], each["is_bound"]) for each in told] == [(10.0, True), (20.0, False)]


def test_a_schedule_says_whether_it_was_timed_inside_a_model(
    coordinator: Coordinator, owned: OwnedRows, both: tuple[int, int]
) -> None:
    _, fast = both
    timing = JobOptions().timing_inside(parse_target('{"kind":"llvm","num-cores":2}'), "a model", 0)

    def time_inside(session: Session) -> None:
        alone = Contexts(session).get(owned.context_id)
        session.get_one(Schedule, fast).context_id = Contexts(session).ensure_like(alone, evaluator=timing).id

    owned.write(time_inside)
    told = coordinator.http.get("/schedules").json()["items"]
    assert {each["latency_us"]: each["inside_model"] for each in told} == {10.0: True, 20.0: False}


def test_the_list_comes_in_pages(coordinator: Coordinator, owned: OwnedRows) -> None:
    for workload, latency_us in (("w1", 30.0), ("w0", 20.0), ("w0", 10.0)):
        promote(owned, workload, latency_us)
    with Client(coordinator.url) as client:
        pages = client.connection.iterate_values(VerifiedSchedule, "/schedules", beaten=True, limit=1)
        assert [(each.workload, each.latency_us) for each in pages] == [
            ("w0", 10.0),
            ("w0", 20.0),
            ("w1", 30.0),
        ]
        assert [each.latency_us for each in client.schedules(beaten=True)] == [10.0, 20.0, 30.0]
        assert [each.workload for each in client.schedules()] == ["w0", "w1"]


def test_a_schedule_is_shown_with_trace_and_scripts(coordinator: Coordinator, both: tuple[int, int]) -> None:
    file = coordinator.artifacts / scripts_uri("", "local", "w0", "[1]").lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(SCRIPTS))
    slow, fast = (coordinator.http.get(f"/schedules/{number}").json() for number in both)
    assert (fast["trace"], fast["run_us"], fast["scripts"]) == ("[1]", [10.0, 10.0], SCRIPTS)
    assert slow["scripts"] is None


def test_half_written_scripts_are_none(coordinator: Coordinator, both: tuple[int, int]) -> None:
    file = coordinator.artifacts / scripts_uri("", "local", "w0", "[1]").lstrip("/")
    file.parent.mkdir(parents=True)
    for torn in (json.dumps(SCRIPTS)[:-3], "", "{}"):
        file.write_text(torn)
        assert coordinator.http.get(f"/schedules/{both[1]}").json()["scripts"] is None


def test_a_schedule_that_is_not_there_is_not_found_and_neither_is_another_owners(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    foreign = promote(OwnedRows(coordinator.database, owner="eve"), "w0", 10.0)
    for number in (foreign, 999):
        assert coordinator.http.get(f"/schedules/{number}").status_code == 404
