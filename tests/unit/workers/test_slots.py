"""A slot that only imports wakes those that tune, and starts nothing that it does not need."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mallorn.core import queues
from mallorn.core.settings import Settings
from mallorn.core.states import WorkKind
from mallorn.db.repositories.claim_and_release_work import WorkerAbility
from mallorn.db.repositories.leases import LeaseToken, WorkItem
from mallorn.db.tables import Job
from mallorn.workers import celery_tasks as tasks
from mallorn.workers.process.heartbeat import EVERY_KIND
from mallorn.workers.process.lease_renewal import LeaseKeeper
from mallorn.workers.process.leased_work import LeasedWork
from mallorn.workers.process.worker_runtime import Runtime

SENT = list[tuple[Any, ...]]


@contextmanager
def leased_import(runtime: Runtime, ability: WorkerAbility, _begin: object) -> Iterator[LeasedWork | None]:
    """Hold a lease on the import of job `j`, if imports are asked for."""
    hold = LeaseToken(WorkItem(WorkKind.IMPORT, "j"), 1, "w")
    lease = LeaseKeeper(lambda: True, 60.0)
    yield LeasedWork(runtime, hold, Job(id="j"), lease) if ability.kinds == {WorkKind.IMPORT} else None


@pytest.fixture
def slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    found = Runtime(Settings(data_dir=tmp_path))
    found.roll_call.ability = WorkerAbility(EVERY_KIND, frozenset({"a builder"}))
    monkeypatch.setattr(tasks, "runtime", lambda: found)
    monkeypatch.setattr(tasks, "import_job", lambda _work: None)
    monkeypatch.setattr(tasks, "leased_work", leased_import)
    return found


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> SENT:
    messages: SENT = []
    monkeypatch.setattr(tasks, "send_task", lambda *message: messages.append(message))
    return messages


def test_a_slot_that_imports_has_another_get_ready_to_tune(slot: Runtime, sent: SENT) -> None:
    slot.tunes = False
    tasks.do_work(queues.IMPORT)
    assert sent == [(queues.WARM_UP, "j"), (queues.PLAN, "j")]


def test_a_slot_that_does_both_needs_no_message(slot: Runtime, sent: SENT) -> None:
    tasks.do_work(queues.IMPORT)
    assert sent == [(queues.PLAN, "j")]


def test_a_slot_that_imports_keeps_no_builders(slot: Runtime) -> None:
    slot.tunes = False
    slot.warm_up("j")
    assert not {"builders", "compiler"} & vars(slot).keys()


def test_all_queues_are_served_by_one_who_imports_and_those_who_tune() -> None:
    assert {queues.IMPORT, *queues.TUNING_QUEUES} == set(queues.WORKER_QUEUES)
    assert queues.QUEUES[queues.WARM_UP] in queues.TUNING_QUEUES
