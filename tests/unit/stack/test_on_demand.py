"""A device for every target that jobs ask for and this host executes; the jobs of others are told why not."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from mallorn.core.host_id import host_id
from mallorn.core.settings import Settings
from mallorn.core.states import JobState
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.fleet import DeviceInfo
from mallorn.core.virtual_devices import add_virtual_device
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.jobs import Jobs, NewJob
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.session import Database
from mallorn.db.tables import TargetRow
from mallorn.stack import run_stack
from mallorn.stack.run_stack import DeviceDemand, DevicesOnDemand
from mallorn.workers.device.target_support import find_unsupported_reason
from tests.fixtures.rows import explanation_of

OLDER = parse_target({"kind": "llvm", "mcpu": "haswell", "num-cores": 2})
REMOVED = Target('{"kind":"vulkan","max_num_threads":256}')
FOREIGN = parse_target({"kind": "cuda", "arch": "sm_80"})


@dataclass
class Place:
    """A database with jobs, a tracker's devices, and a host that executes CPU targets."""

    database: Database
    devices: list[Any] = field(default_factory=list)
    asked: list[Target] = field(default_factory=list)

    def why_not(self, target: Target) -> str:
        self.asked.append(target)
        return "" if target.runs_on_cores else "it has no cuda device"

    def job(self, target: Target) -> str:
        with self.database.transaction() as session:
            Models(session).add("m", "ada", "model", 1)
            target_id = Targets(session).ensure(target).id
            return str(Jobs(session).create(NewJob("ada", "m", "m", target_id, 9, None, 0, {}))[0].id)

    def end(self, job_id: str) -> None:
        with self.database.transaction() as session:
            Jobs(session).cancel(job_id, None)

    def explanation(self, job_id: str) -> str:
        with self.database.session() as session:
            return explanation_of(Jobs(session).get(job_id, None))

    def serve(self, target: Target, **info: Any) -> None:
        endpoint = SimpleNamespace(info=DeviceInfo(**info), host_id=host_id())
        self.devices.append(SimpleNamespace(target=target.text, endpoint=endpoint))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    url = f"sqlite:///{tmp_path / 'mallorn.db'}"
    upgrade(url)
    database = Database(url)
    yield Place(database)
    database.dispose()


@pytest.fixture
def demand(place: Place, monkeypatch: pytest.MonkeyPatch) -> DeviceDemand:
    settings = Settings(database_url=place.database.url, tracker="127.0.0.1:4711")
    found = DeviceDemand(settings, place.why_not)
    monkeypatch.setattr(found, "_fleet", SimpleNamespace(devices=lambda: place.devices))
    return found


def test_a_target_with_a_job_and_without_a_device_is_wanted(place: Place, demand: DeviceDemand) -> None:
    demand.update_targets()
    assert not demand.targets
    place.job(OLDER)
    demand.update_targets()
    assert demand.targets == {OLDER}


def test_a_device_of_ours_does_not_count_as_somebody_elses(place: Place, demand: DeviceDemand) -> None:
    place.job(OLDER)
    demand.update_targets()
    place.serve(OLDER)
    demand.update_targets()
    assert demand.targets == {OLDER}


def test_what_another_device_serves_needs_none_of_ours(place: Place, demand: DeviceDemand) -> None:
    place.serve(OLDER)
    place.job(OLDER)
    demand.update_targets()
    assert not demand.targets


def test_the_device_of_this_host_gets_no_rival_while_it_starts_again(
    place: Place, demand: DeviceDemand
) -> None:
    place.serve(OLDER, is_local=True)
    place.job(OLDER)
    demand.update_targets()
    place.devices.clear()
    demand.update_targets()
    assert not demand.targets


def test_a_device_ends_some_time_after_its_last_job(
    place: Place, demand: DeviceDemand, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = place.job(OLDER)
    demand.update_targets()
    place.end(job)
    demand.update_targets()
    assert demand.targets == {OLDER}
    monkeypatch.setattr(run_stack, "UNUSED_SEC", 0.0)
    demand.update_targets()
    assert not demand.targets


def test_a_job_that_no_device_here_can_serve_is_told_at_once(place: Place, demand: DeviceDemand) -> None:
    job = place.job(FOREIGN)
    for _ in range(2):
        demand.update_targets()
    assert not demand.targets
    what, command = place.explanation(job).split("\n")
    assert what == f"waits for a device for {FOREIGN}: this machine cannot run it, it has no cuda device"
    assert " --tracker THIS_MACHINE:9190" in command
    assert f"mallorn device --target '{FOREIGN}' --tracker " in command
    assert place.asked == [FOREIGN]  # once: TVM has to be loaded for an answer


def test_a_paused_job_wants_nothing(place: Place, demand: DeviceDemand) -> None:
    job = place.job(OLDER)
    with place.database.transaction() as session:
        assert Jobs(session).pause(job, None).state == JobState.PAUSED
    demand.update_targets()
    assert not demand.targets


def test_the_supervisor_starts_what_is_wanted_once_and_ends_what_is_not() -> None:
    did: list[tuple[str, str]] = []
    supervisor: Any = SimpleNamespace(
        add=lambda spec: did.append(("add", spec.name)), remove=lambda name: did.append(("remove", name))
    )
    spec_of: Any = lambda target: SimpleNamespace(name=f"device-{target.key}")  # noqa: E731
    devices = DevicesOnDemand(supervisor, spec_of, lambda _words: None)
    for wanted in ([], [OLDER], [OLDER], []):
        devices.start_and_stop_devices(wanted)
    assert did == [("add", f"device-{OLDER.key}"), ("remove", f"device-{OLDER.key}")]


def test_a_job_that_no_device_measures_wants_none(place: Place, demand: DeviceDemand) -> None:
    place.job(add_virtual_device(OLDER, "simulated"))
    demand.update_targets()
    assert demand.targets == frozenset()
    assert place.asked == []


def test_a_job_whose_kind_of_hardware_is_missing_keeps_no_other_from_a_device(
    place: Place, demand: DeviceDemand, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = place.job(FOREIGN), place.job(OLDER)
    with place.database.transaction() as session:  # an earlier version knew its kind
        session.execute(update(TargetRow).where(TargetRow.key == FOREIGN.key).values(text=REMOVED.text))
    monkeypatch.setattr(demand, "_why_not", lambda target: why_not(place, target))
    demand.update_targets()
    assert demand.targets == {OLDER}
    assert "this machine cannot run it, unknown target kind 'vulkan'" in place.explanation(job)


def why_not(place: Place, target: Target) -> str:
    return find_unsupported_reason(target) if target == REMOVED else place.why_not(target)
