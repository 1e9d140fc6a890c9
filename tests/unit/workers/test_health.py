"""A worker whose host fails it rests, says why, and tries itself again."""

from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from mallorn.core.errors import HostFault, MallornError, StorageFull
from mallorn.workers import celery_tasks
from mallorn.workers.process import worker_health
from mallorn.workers.process.places import Places
from mallorn.workers.process.worker_health import (
    FIRST_REST_SEC,
    LONGEST_REST_SEC,
    SOON_SEC,
    Health,
    find_host_fault,
)
from mallorn.workers.subprocesses.shutdown import STOP


class Ward:
    """A worker with a clock that only its own rests move, and looks at its host whose answers are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_sec = 1000.0
        self.rests: list[float] = []
        self.told: list[str] = []
        self.looks: Iterator[MallornError | None] = iter(())
        monkeypatch.setattr(worker_health, "_sleep", self._pass)
        monkeypatch.setattr(worker_health, "find_host_fault", lambda tunes: next(self.looks, None))
        monkeypatch.setattr(worker_health.time, "monotonic", lambda: self.now_sec)
        self.health = Health(self.told.append, lambda: True)

    def _pass(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now_sec += seconds


@pytest.fixture
def ward(monkeypatch: pytest.MonkeyPatch) -> Ward:
    return Ward(monkeypatch)


def test_who_is_well_never_rests(ward: Ward) -> None:
    ward.health.pause_until_healthy()
    assert (ward.rests, ward.told) == ([], [])


def test_who_fell_ill_rests_until_a_look_at_its_host_finds_nothing(ward: Ward) -> None:
    ward.looks = iter([HostFault("no linker"), StorageFull("no room"), None])
    ward.health.record_fault(HostFault("cannot run the linker\nbecause"))
    ward.health.pause_until_healthy()
    assert ward.told == ["cannot run the linker", "no linker", "no room", ""]
    assert ward.rests == [FIRST_REST_SEC, 2 * FIRST_REST_SEC, 4 * FIRST_REST_SEC]
    ward.health.pause_until_healthy()
    assert len(ward.rests) == 3, "it takes work again"


def test_who_fails_again_soon_rests_longer_though_nothing_is_found(ward: Ward) -> None:
    for _ in range(6):
        ward.health.record_fault(HostFault())
        ward.health.pause_until_healthy()
    assert ward.rests == [5, 10, 20, 40, LONGEST_REST_SEC, LONGEST_REST_SEC]
    ward.now_sec += SOON_SEC + 1
    ward.health.record_fault(HostFault())
    ward.health.pause_until_healthy()
    assert ward.rests[-1] == FIRST_REST_SEC


def test_a_worker_that_shall_stop_rests_no_longer(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STOP, "requested", type(STOP.requested)())
    ward.looks = iter([HostFault()] * 9)
    ward.health.record_fault(HostFault())
    STOP.request_stop()
    ward.health.pause_until_healthy()
    assert ward.rests == []


def test_a_host_without_a_linker_ails_those_who_build(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_host_fault(tunes=True) is None
    monkeypatch.setattr(worker_health, "check_linking", Mock(side_effect=HostFault("no linker")))
    assert str(find_host_fault(tunes=True)) == "no linker"
    assert find_host_fault(tunes=False) is None, "an import links nothing"


def test_a_host_without_room_ails_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        worker_health, "raise_if_disk_unusable", Mock(side_effect=OSError(28, "No space left on device"))
    )
    assert isinstance(find_host_fault(tunes=False), StorageFull)


def test_a_place_rests_before_it_begins_and_before_its_message_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    here = SimpleNamespace(health=SimpleNamespace(pause_until_healthy=lambda: steps.append("rest")))
    monkeypatch.setattr(celery_tasks, "runtime", lambda: SimpleNamespace(places=Places(lambda: here)))
    monkeypatch.setattr(celery_tasks, "measure_device", lambda *_: steps.append("work"))
    celery_tasks.measure_machine("bench-1")
    assert steps == ["rest", "work", "rest"]
