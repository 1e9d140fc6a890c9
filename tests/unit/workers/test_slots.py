"""A slot that only imports wakes those that tune, and starts nothing that it does not need."""

from pathlib import Path
from typing import Any

import pytest

from mallorn.core import queues
from mallorn.core.settings import Settings
from mallorn.workers import celery_tasks as tasks
from mallorn.workers.process.worker_runtime import Runtime

SENT = list[tuple[Any, ...]]


@pytest.fixture
def slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    found = Runtime(Settings(data_dir=tmp_path))
    monkeypatch.setattr(tasks, "runtime", lambda: found)
    monkeypatch.setattr(tasks, "import_job", lambda _runtime, job_id: job_id)
    return found


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> SENT:
    messages: SENT = []
    monkeypatch.setattr(tasks, "send_task", lambda *message: messages.append(message))
    return messages


def test_a_slot_that_imports_has_another_get_ready_to_tune(slot: Runtime, sent: SENT) -> None:
    slot.tunes = False
    tasks.import_model("j")
    assert sent == [(queues.WARM_UP, "j"), (queues.PLAN, "j")]


def test_a_slot_that_does_both_needs_no_message(slot: Runtime, sent: SENT) -> None:
    tasks.import_model("j")
    assert sent == [(queues.PLAN, "j")]


def test_a_slot_that_imports_keeps_no_builders(slot: Runtime) -> None:
    slot.tunes = False
    slot.warm_up("j")
    assert not {"builders", "compiler"} & vars(slot).keys()


def test_all_queues_are_served_by_one_who_imports_and_those_who_tune() -> None:
    assert {queues.IMPORT, *queues.TUNING_QUEUES} == set(queues.WORKER_QUEUES)
    assert queues.ROUTES[queues.WARM_UP]["queue"] in queues.TUNING_QUEUES
