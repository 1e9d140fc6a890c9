"""A service that is named, or that runs on the directory, is asked part by part."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mallorn.core import queues
from mallorn.core.values.fleet import DeviceInfo, WorkerInfo
from mallorn.db.repositories.control_loop_ticks import LoopTicks
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.workers import Workers
from mallorn.stack.data_directory import DataDir, StackInfo
from mallorn.stack.tcp_ports import free_port
from tests.fixtures.answers import mallorn
from tests.fixtures.coordinator import OwnedRows, Start
from tests.fixtures.data_directory import whole

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORN_HOST_FOLDER", str(tmp_path))
    monkeypatch.setenv("MALLORN_DATA_DIR", str(tmp_path / "nothing here"))


def looked(*words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = mallorn("doctor", "--json", *words)
    return result.exit_code, {each["name"]: each for each in json.loads(result.stdout)}


def test_of_a_service_elsewhere_the_parts_are_asked_and_nothing_here(start: Start) -> None:
    coordinator = start()
    owned = OwnedRows(coordinator.database)
    owned.write(lambda session: Workers(session).record_seen("w1", "here", WorkerInfo()))
    seen = SeenDevice("d1", owned.target_id, "here", "host", 2, "0.27.0")
    owned.write(lambda session: Devices(session).record_seen(seen))
    for loop, every_sec in queues.TICKS.items():
        owned.write(lambda session, loop=loop, sec=every_sec: LoopTicks(session).begin_turn(loop, sec))
        owned.write(lambda session, loop=loop: LoopTicks(session).record_turn_end(loop))
    code, found = looked("--url", coordinator.url)
    assert code == 0, found
    assert list(found) == ["service", "control", "workers", "devices", "locks"]
    assert all(each["ok"] for each in found.values())
    assert "1 are there" in found["workers"]["words"]
    assert "d1 answer" in found["devices"]["words"]


def test_a_service_without_workers_is_bad_and_without_devices_a_warning(start: Start) -> None:
    code, found = looked("--url", start().url)
    assert code == 9
    assert (found["service"]["ok"], found["workers"]["ok"], found["devices"]["ok"]) == (True, False, False)
    assert not found["control"]["ok"]
    assert "control.reap has not run yet" in found["control"]["words"]
    assert "mallorn control" in found["control"]["hint"]
    assert "mallorn worker" in found["workers"]["hint"]
    assert not found["devices"]["necessary"]


def test_a_worker_that_rests_and_one_that_sees_no_devices_are_named_with_why(start: Start) -> None:
    coordinator = start()
    owned = OwnedRows(coordinator.database)
    ill, blind = (
        WorkerInfo(missing_resource="no linker"),
        WorkerInfo(device_list_error="OverflowError: infinity"),
    )
    owned.write(lambda session: Workers(session).record_seen("ill", "here", ill, "resting: no linker"))
    _, found = looked("--url", coordinator.url)
    assert not found["workers"]["ok"], "nobody works"
    assert "ill: no linker" in found["workers"]["words"]
    owned.write(lambda session: Workers(session).record_seen("blind", "here", blind))
    _, found = looked("--url", coordinator.url)
    assert found["workers"]["words"] == "2 are there; ill: no linker; blind: OverflowError: infinity"


def test_a_worker_and_a_device_of_one_host_that_share_no_locks_are_a_warning(start: Start) -> None:
    coordinator = start()
    owned = OwnedRows(coordinator.database)
    apart, older = WorkerInfo(lock_file="1-7"), WorkerInfo()
    owned.write(lambda session: Workers(session).record_seen("worker", "here", apart))
    owned.write(lambda session: Workers(session).record_seen("older", "here", older))
    seen = SeenDevice("device", owned.target_id, "here", "host", 2, "0.27.0", DeviceInfo(lock_file="1-9"))
    owned.write(lambda session: Devices(session).record_seen(seen))
    _, found = looked("--url", coordinator.url)
    assert (found["locks"]["ok"], found["locks"]["necessary"]) == (False, False)
    assert "device and worker" in found["locks"]["words"]
    assert "older" not in found["locks"]["words"]
    assert "MALLORN_HOST_FOLDER" in found["locks"]["hint"]
    assert "share no locks: device and worker" in mallorn("devices", "--url", coordinator.url).stderr
    owned.write(lambda session: Devices(session).record_seen(replace(seen, info=DeviceInfo(lock_file="1-7"))))
    _, found = looked("--url", coordinator.url)
    assert found["locks"]["ok"]


def test_a_broker_that_is_away_is_named(start: Start) -> None:
    coordinator = start(redis_url=f"redis://127.0.0.1:{free_port()}/0")
    code, found = looked("--url", coordinator.url)
    assert code == 9
    assert list(found) == ["service"]
    assert "broker" in found["service"]["words"]


@pytest.mark.usefixtures("database_url")
def test_an_address_at_which_nobody_listens_is_named() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    code, found = looked("--url", address)
    assert code == 9
    assert address in found["service"]["words"]


@contextmanager
def held(data: Path, url: str, tracker: str) -> Iterator[None]:
    """A directory whose stack says that it is ready."""
    directory = DataDir(data)
    directory.create_directories()
    with (
        directory.hold_stack_lock(),
        directory.publish_stack_info(StackInfo(url, 1, "", tracker, until_unused=False)),
    ):
        yield


def test_of_a_stack_on_this_machine_the_tracker_is_asked_too(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = whole(tmp_path / "host", monkeypatch)
    tracker = f"127.0.0.1:{free_port()}"
    with held(data, start().url, tracker):
        _, found = looked("--data", str(data))
    assert found["service"]["ok"]
    assert found["database"]["ok"]
    assert not found["tracker"]["ok"]
    assert tracker in found["tracker"]["words"]
