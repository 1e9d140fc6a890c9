"""What forty workers cost that each look at two hundred devices every five seconds."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event, update

from mallorn.core.values.fleet import DeviceInfo, DisturbedInterval
from mallorn.db.repositories.devices import Devices
from mallorn.db.repositories.withdraw_measurements import CLOCKS_SEC, Withdrawals
from mallorn.db.repositories.workers import FRESH_SEC, Workers
from mallorn.db.session import Database
from mallorn.db.tables import Device
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.measure.tracked_devices import TrackedDevice
from mallorn.workers.process.heartbeat import BUSY_SEC, ENOUGH_SEC, EVERY_SEC, MISSED_SEC, Heartbeat

TARGETS = ('{"kind":"llvm","num-cores":2}', '{"kind":"llvm","num-cores":4}')
DEVICES = 200


def fleet(count: int = DEVICES) -> Any:
    """A tracker with so many devices, of two targets."""
    known = [
        TrackedDevice(
            "key",
            TARGETS[number % 2],
            False,
            Endpoint(f"pod-{number:03}", "host", "class", 2, "0.27.0", DeviceInfo(cores=2)),
        )
        for number in range(count)
    ]
    return SimpleNamespace(known=known, devices=lambda: list(known))


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """What is sent to a database meanwhile."""
    sent: list[str] = []

    def remember(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().startswith(("SELECT", "INSERT", "UPDATE")):
            sent.append(statement)

    event.listen(database.engine, "before_cursor_execute", remember)
    try:
        yield sent
    finally:
        event.remove(database.engine, "before_cursor_execute", remember)


def rows_of(database: Database) -> dict[str, Device]:
    with database.session() as session:
        return {device.name: device for device in Devices(session).list()}


def passed(database: Database, seconds: float) -> None:
    with database.transaction() as session:
        session.execute(update(Device).values(last_seen=Device.last_seen - seconds))


def test_a_roll_call_is_a_few_statements_however_many_devices_there_are(database: Database) -> None:
    call = Heartbeat(database, fleet(), "w")
    with statements(database) as first:
        call.report_devices()
    passed(database, 2 * ENOUGH_SEC)
    with statements(database) as second:
        call.report_devices()
    assert len(rows_of(database)) == DEVICES
    assert len(first) <= 14
    assert len(second) <= 6


def test_what_one_worker_saw_just_now_another_does_not_write_again(database: Database) -> None:
    tracker = fleet()
    Heartbeat(database, tracker, "w").report_devices()
    with statements(database) as sent:
        Heartbeat(database, tracker, "v").report_devices()
    written = [each.split()[2] for each in sent if not each.startswith("SELECT")]
    assert written == ["workers"], "which devices it reaches"


def test_what_changed_is_written_however_lately_it_was_seen(database: Database) -> None:
    tracker = fleet(3)
    call = Heartbeat(database, tracker, "w")
    call.report_devices()
    governed = DeviceInfo(cores=2, governor="powersave")
    tracker.known[1] = TrackedDevice(
        "key", TARGETS[1], False, replace(tracker.known[1].endpoint, info=governed)
    )
    call.report_devices()
    assert [row.info.governor for row in rows_of(database).values()] == ["", "powersave", ""]


def test_a_device_that_only_became_busy_is_written_once_in_a_few_seconds(database: Database) -> None:
    tracker = fleet(3)
    call = Heartbeat(database, tracker, "w")
    call.report_devices()
    tracker.known[1] = TrackedDevice("key", TARGETS[1], True, tracker.known[1].endpoint)
    with statements(database) as sent:
        call.report_devices()
    assert {each.split()[0] for each in sent} == {"SELECT"}
    passed(database, BUSY_SEC)
    call.report_devices()
    assert [row.info.busy for row in rows_of(database).values()] == [False, True, False]


def test_rows_are_written_again_before_a_reader_takes_their_devices_for_silent(database: Database) -> None:
    tracker = fleet(3)
    call = Heartbeat(database, tracker, "w")
    call.report_devices()
    passed(database, ENOUGH_SEC)
    with statements(database) as sent:
        call.report_devices()
    assert [each.split()[0] for each in sent].count("INSERT") == 1
    assert ENOUGH_SEC + 2 * EVERY_SEC <= MISSED_SEC < FRESH_SEC


def test_a_device_keeps_what_is_known_of_its_machine_until_it_is_another(database: Database) -> None:
    tracker, met = fleet(4), []
    call = Heartbeat(database, tracker, "w")
    call.on_unmeasured = met.append
    call.report_devices()
    assert met == ["pod-000", "pod-001", "pod-002", "pod-003"]
    with database.transaction() as session:
        session.execute(update(Device).values(machine={"reason": "it was measured"}))
    tracker.known.append(
        TrackedDevice("key", TARGETS[0], False, Endpoint("pod-new", "h", "class", 2, "0.27.0"))
    )
    tracker.known[1] = TrackedDevice("key", TARGETS[1], False, Endpoint("pod-001", "h", "other", 2, "0.27.0"))
    passed(database, 2 * ENOUGH_SEC)
    call.report_devices()
    unmeasured = {name for name, row in rows_of(database).items() if row.machine is None}
    assert unmeasured == {"pod-001"}, "a new one of a class that is known is known"
    assert met[4:] == ["pod-001"]


def test_times_that_a_device_calls_disturbed_become_bounds_once_and_again_when_all_are_stored(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = fleet(2)
    interval = DisturbedInterval(since=time.time() - 5, until=time.time())
    disturbed = replace(tracker.known[0].endpoint, info=DeviceInfo(disturbed=interval))
    tracker.known[0] = replace(tracker.known[0], endpoint=disturbed)
    marked: list[tuple[str, DisturbedInterval]] = []
    monkeypatch.setattr(Withdrawals, "mark_disturbed", lambda _self, *what: marked.append(what) or 0)
    call = Heartbeat(database, tracker, "w")
    call.report_devices()
    call.report_devices()
    assert marked == [("pod-000", interval)]
    now = time.time()
    monkeypatch.setattr("mallorn.workers.process.heartbeat.time.time", lambda: now + 2 * CLOCKS_SEC)
    call.report_devices()
    call.report_devices()
    assert marked == 2 * [("pod-000", interval)]


def test_two_devices_of_one_name_are_one_row(database: Database) -> None:
    tracker = fleet(1)
    tracker.known *= 2
    Heartbeat(database, tracker, "w").report_devices()
    assert list(rows_of(database)) == ["pod-000"]


def test_who_has_stopped_for_good_is_not_read_again(database: Database) -> None:
    tracker = fleet()
    call = Heartbeat(database, tracker, "w")
    call.report_devices()
    gone, tracker.known[:] = len(tracker.known) - 1, tracker.known[:1]
    passed(database, 60)
    with statements(database) as leaving:
        call.report_devices()
    passed(database, 60)
    with statements(database) as later:
        call.report_devices()
    assert sum(row.info.stopped for row in rows_of(database).values()) == gone
    assert len(leaving) > gone
    assert len(later) <= 5


def test_whatever_ends_one_turn_the_next_one_is_taken_and_the_worker_says_so(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mallorn.core.log_setup.TOLD_EVERY_SEC", 0.0)
    monkeypatch.setattr("mallorn.workers.process.heartbeat.SOON_SEC", 0.0)

    def break_off() -> Any:
        raise OverflowError("cannot convert float infinity to integer")

    tracker: Any = SimpleNamespace(devices=break_off)
    call = Heartbeat(database, tracker, "w")
    with caplog.at_level(logging.ERROR):
        call.report_once()
    call.report_worker()
    assert "OverflowError" in caplog.text
    with database.session() as session:
        assert Workers(session).list()[0].info.device_list_error.startswith("OverflowError: cannot convert")
    tracker.devices = fleet(1).devices
    call.report_once()
    call.report_worker()
    with database.session() as session:
        assert Workers(session).list()[0].info.device_list_error == ""
    assert list(rows_of(database)) == ["pod-000"]
