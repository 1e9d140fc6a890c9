"""What the API calls the state of workers and devices: those that stopped come last."""

from typing import Any

import pytest
from sqlalchemy import update

from mallorn.core.host_id import host_id
from mallorn.core.targets import parse_target
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workers import Workers
from mallorn.db.tables import Device, Worker
from tests.fixtures.coordinator import Coordinator

HOUR_SEC = 3600.0


def states(coordinator: Coordinator, kind: str, name: str) -> list[tuple[str, str]]:
    rows: list[dict[str, Any]] = coordinator.http.get(f"/{kind}").json()["items"]
    return [(row[name], row["state"]) for row in rows]


@pytest.fixture
def fleet(coordinator: Coordinator) -> Coordinator:
    """One of every state, the stopped ones first by name."""
    infos = {"a": {"stopped": True}, "b": {}, "c": {}, "d": {}}
    with coordinator.database.transaction() as session:
        target_id = Targets(session).ensure(parse_target({"kind": "llvm", "num-cores": 2})).id
        for name, info in infos.items():
            Workers(session).record_seen(name, "host", info, "a round" if name == "d" else "")
            busy = info | {"busy": name == "d"}
            Devices(session).record_seen(SeenDevice(name, target_id, "host", "class", 2, "0.27.0", busy))
        for table, key in ((Worker, Worker.id), (Device, Device.name)):
            session.execute(update(table).where(key == "b").values(last_seen=table.last_seen - HOUR_SEC))
    return coordinator


def test_a_worker_that_stopped_is_not_called_silent_and_comes_last(fleet: Coordinator) -> None:
    expected = [("b", "silent"), ("c", "idle"), ("d", "busy"), ("a", "stopped")]
    assert states(fleet, "workers", "id") == expected


def test_a_device_that_stopped_is_not_called_silent_and_comes_last(fleet: Coordinator) -> None:
    expected = [("b", "silent"), ("c", "idle"), ("d", "measuring"), ("a", "stopped")]
    assert states(fleet, "devices", "name") == expected


def test_a_device_that_stopped_is_not_online(fleet: Coordinator) -> None:
    rows = fleet.http.get("/devices").json()["items"]
    assert [row["name"] for row in rows if row["online"]] == ["c", "d"]


def test_devices_are_listed_by_target_which_may_be_local(fleet: Coordinator) -> None:
    zen = parse_target({"kind": "llvm", "mcpu": "znver4", "num-cores": 2})
    with fleet.database.transaction() as session:
        target_id = Targets(session).ensure(zen).id
        Devices(session).record_seen(SeenDevice("e", target_id, host_id(), "class", 2, "0.27.0", {}))
    for target in ("local", zen.text, '{"kind": "llvm", "num-cores": 2, "mcpu": "znver4"}'):
        rows = fleet.http.get("/devices", params={"target": target}).json()["items"]
        assert [(row["name"], row["target"]) for row in rows] == [("e", zen.text)]
    assert fleet.http.get("/devices", params={"target": "cuda"}).json()["error"] == "NoDevice"
