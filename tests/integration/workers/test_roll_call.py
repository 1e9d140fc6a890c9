"""Who leaves says so; a device that its tracker no longer knows has stopped."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from mallorn.core.states import WorkKind
from mallorn.core.targets import parse_target
from mallorn.core.values.fleet import DeviceInfo
from mallorn.db.repositories.devices import Devices
from mallorn.db.repositories.workers import Workers
from mallorn.db.session import Database
from mallorn.db.tables import Device
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.measure.tracked_devices import TrackedDevice
from mallorn.workers.process.heartbeat import Heartbeat
from tests.fixtures.rows import Rows
from tests.fixtures.waiting import wait_for

TARGET = '{"kind":"llvm","num-cores":2}'


@pytest.fixture
def tracker() -> Any:
    """A tracker with one device."""
    endpoint = Endpoint("d", "host", "class", 2, "0.27.0", DeviceInfo(is_local=True))
    known = [TrackedDevice("key", TARGET, True, endpoint)]
    return SimpleNamespace(known=known, devices=lambda: known)


def devices(database: Database) -> dict[str, dict[str, Any]]:
    with database.session() as session:
        return {device.name: device.info.to_stored_json() for device in Devices(session).list()}


def workers(database: Database) -> dict[str, dict[str, Any]]:
    with database.session() as session:
        return {worker.id: worker.info.to_stored_json() for worker in Workers(session).list()}


def test_a_worker_that_leaves_says_so(database: Database, tracker: Any) -> None:
    call = Heartbeat(database, tracker, "w")
    call.start("full", frozenset({WorkKind.IMPORT}))
    wait_for(lambda: devices(database), "the first report")
    assert workers(database)["w"]["can_tune"] is False
    assert workers(database)["w"]["sandbox"] == "full"
    assert {"draft", "xgboost"} <= set(workers(database)["w"]["cost_models"])
    assert "stopped" not in workers(database)["w"]
    call.stop()
    assert workers(database)["w"]["stopped"] is True


def test_a_worker_removes_from_its_host_what_was_deleted_as_long_as_it_lives(
    database: Database, tracker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[None] = []
    monkeypatch.setattr("mallorn.workers.process.heartbeat.TIDY_SEC", 0.0)
    monkeypatch.setattr("mallorn.workers.process.heartbeat.EVERY_SEC", 0.01)
    call = Heartbeat(database, tracker, "w")

    def fails() -> None:
        turns.append(None)
        raise OSError("no such folder")

    call.start("full", tidy=fails)
    wait_for(lambda: len(turns) > 1, "a second turn after one that failed")
    call.stop()


def test_a_device_that_its_tracker_forgot_has_stopped_until_it_is_back(
    database: Database, tracker: Any
) -> None:
    call = Heartbeat(database, tracker, "w")
    call.report_devices()
    device = tracker.known.pop()
    call.report_devices()
    assert "stopped" not in devices(database)["d"]  # the tracker may just have started again
    with database.transaction() as session:
        session.execute(update(Device).values(last_seen=Device.last_seen - 60))
    call.report_devices()
    assert devices(database)["d"] == {"is_local": True, "busy": False, "stopped": True}
    tracker.known.append(device)
    call.report_devices()
    assert devices(database)["d"] == {"is_local": True, "busy": True}


def test_a_job_that_waits_for_a_device_is_named_as_soon_as_the_device_is_seen(
    rows: Rows, tracker: Any
) -> None:
    planned: list[str] = []
    reached: list[object] = []

    def plan(job_id: str) -> None:
        reached.append(workers(rows.database)["w"]["device_targets"])
        planned.append(job_id)

    found, tracker.known[:] = list(tracker.known), []
    call = Heartbeat(rows.database, tracker, "w")
    call.start("full", plan=plan)
    wait_for(lambda: workers(rows.database), "a look at a tracker without devices")
    assert planned == []
    tracker.known[:] = found
    wait_for(lambda: planned, "the next look")
    call.stop()
    assert planned == [rows.job_id]
    assert reached == [[parse_target(TARGET).key]], "the plan knows that this worker reaches the device"


def test_a_worker_that_finds_no_work_looks_for_devices_that_just_came(
    database: Database, tracker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mallorn.workers.process.heartbeat.EVERY_SEC", 600.0)
    call = Heartbeat(database, tracker, "w")
    call.start("full")
    wait_for(lambda: call.ability.devices, "the first report")
    [known] = tracker.known
    tracker.known.append(replace(known, endpoint=replace(known.endpoint, name="e", host_class="other")))

    def is_known() -> bool:
        call.look_for_devices()
        return len(call.ability.devices) == 2

    wait_for(is_known, "a look before the next report")
    call.stop()
