"""A service that is named, or that runs on the directory, is asked part by part."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mallorn.core import queues
from mallorn.core.address_checks import free_port
from mallorn.core.values.fleet import DeviceInfo, WorkerInfo
from mallorn.db.repositories.control_loop_ticks import LoopTicks
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.workers import Workers
from mallorn.stack.data_directory import DataDir, StackInfo
from tests.fixtures.answers import Shell, mallorn
from tests.fixtures.coordinator import OwnedRows, Start
from tests.fixtures.data_directory import whole
from tests.fixtures.kept import Kept

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORN_HOST_FOLDER", str(tmp_path))
    monkeypatch.setenv("MALLORN_DATA_DIR", str(tmp_path / "nothing here"))


def looked(*words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = mallorn("doctor", "--json", *words)
    return result.exit_code, {each["name"]: each for each in json.loads(result.stdout)}


def test_of_a_service_elsewhere_the_parts_are_asked_and_nothing_here(
    start: Start, shell: Shell, kept: Kept
) -> None:
    coordinator = start()
    shell.names["URL"] = coordinator.url
    owned, ask = OwnedRows(coordinator.database), "doctor --url URL"

    def worker(name: str, info: WorkerInfo, busy_with: str = "") -> None:
        owned.write(lambda session: Workers(session).record_seen(name, "here", info, busy_with))

    def device(lock_file: str) -> None:
        info = DeviceInfo(lock_file=lock_file)
        seen = SeenDevice("d1", owned.target_id, "here", "host", 2, "0.27.0", info)
        owned.write(lambda session: Devices(session).record_seen(seen))

    shell("no worker, no device and no control", ask)
    for loop, every_sec in queues.TICKS.items():
        owned.write(lambda session, loop=loop, sec=every_sec: LoopTicks(session).begin_turn(loop, sec))
        owned.write(lambda session, loop=loop: LoopTicks(session).record_turn_end(loop))
    worker("w1", WorkerInfo(missing_resource="no linker"), "resting: no linker")
    shell("the only worker rests", ask)
    worker("w2", WorkerInfo(device_list_error="OverflowError: infinity"))
    shell("another sees no devices", ask)
    worker("w1", WorkerInfo())
    worker("w2", WorkerInfo(lock_file="1-7"))
    device("1-9")
    shell("a worker and a device of one host share no locks", ask, "devices --url URL")
    device("1-7")
    shell("all is there", ask)
    kept("doctor-service", shell.texts)


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
