"""A worker does several rounds at a time, which share its builders and not its runner."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Barrier, Event, get_ident

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from mallorn.core import queues
from mallorn.core.settings import Settings
from mallorn.core.states import RoundState
from mallorn.core.targets import NATIVE
from mallorn.db.repositories.leases import Leases, WorkItem
from mallorn.db.session import Database
from mallorn.db.tables import LeaseRow, Round
from mallorn.workers import celery_tasks
from mallorn.workers.host.code_digest import current_builder_name
from mallorn.workers.measure.measurer_interface import MeasureInput
from mallorn.workers.process.leased_work import leased_work
from mallorn.workers.process.worker_runtime import Runtime
from tests.fixtures.workshop import Workshop


@pytest.fixture
def messages(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    sent: list[tuple[object, ...]] = []
    monkeypatch.setattr(celery_tasks, "runtime", lambda: workshop)
    monkeypatch.setattr(celery_tasks, "send_task", lambda *message: sent.append(message))
    workshop.roll_call.ability = workshop.ability()
    return sent


def test_two_rounds_of_one_worker_run_at_the_same_time(
    workshop: Workshop, messages: list[tuple[object, ...]]
) -> None:
    workshop.places.width = 2
    rounds = workshop.plan_rounds(workshop.job())
    assert len(rounds) == 2
    met, seen = Barrier(2), set[int]()

    def meet(slot: MeasureInput) -> None:
        if get_ident() not in seen:
            seen.add(get_ident())
            met.wait(60)  # each round measures while the other one does

    workshop.bench.before = meet
    with ThreadPoolExecutor(2) as threads:
        capability = queues.capability(NATIVE, current_builder_name())
        running = [threads.submit(celery_tasks.do_work.run, capability) for _ in rounds]
        for done in as_completed(running, 60):
            done.result()
    assert [workshop.round(round_id).state for round_id in rounds] == [RoundState.DONE] * 2
    assert Counter(message[0] for message in messages)[queues.TRAIN_COST_MODEL] == 2
    assert workshop.places.taken < workshop.places.width


def test_one_place_refits_cost_models_for_all_that_ask_meanwhile(
    workshop: Workshop, messages: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.places.width = 3
    asked, go_on, refitted = Event(), Event(), list[tuple[int, int]]()

    def train(_place: Runtime, _job_id: str, task_id: int) -> None:
        refitted.append((get_ident(), task_id))
        asked.set()
        assert go_on.wait(60)

    monkeypatch.setattr(celery_tasks, "train", train)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(celery_tasks.train_cost_model.run, "job", 1)
        assert asked.wait(60)
        for task_id in (2, 3, 2):
            threads.submit(celery_tasks.train_cost_model.run, "job", task_id).result(60)
        assert workshop.places.taken == 1
        go_on.set()
        first.result(60)
    assert sorted(task_id for _, task_id in refitted) == [1, 2, 3]
    assert len({thread for thread, _ in refitted}) == 1


def test_a_full_worker_leaves_work_to_others_until_a_place_is_free(
    workshop: Workshop, messages: list[tuple[object, ...]]
) -> None:
    rounds = workshop.plan_rounds(workshop.job())
    capability = queues.capability(NATIVE, current_builder_name())
    with ThreadPoolExecutor(1) as threads:
        with workshop.places.take():
            waiting = threads.submit(celery_tasks.do_work.run, capability)
            assert workshop.claim(name="another") is not None
        waiting.result(60)
    assert RoundState.DONE in {workshop.round(round_id).state for round_id in rounds}


def test_places_have_runners_of_their_own_and_share_all_other_processes(
    database: Database, tmp_path: Path
) -> None:
    worker = Runtime(Settings(database_url=database.url, data_dir=tmp_path, builders=3))
    worker.places.width = 2
    try:
        with worker.places.take() as one, worker.places.take() as other:
            assert one.runner is one.runner is not other.runner
            assert one.compiler is other.compiler
            assert one.builders is one.builders is not other.builders
            assert one.builders.size == other.builders.size == 3
            assert (one.room, one.name, one.health) == (other.room, other.name, other.health)
    finally:
        worker.close()


def test_a_restored_database_gives_no_place_the_lease_that_another_one_holds_from_before(
    workshop: Workshop,
) -> None:
    round_id = workshop.next_round(workshop.job())
    item = WorkItem.for_round(round_id)
    with leased_work(workshop, item) as work:
        assert work is not None
        free = {"until": None, "holder": None, "attempt": 0, "due_at": 0.0}

        def restore(session: Session) -> None:
            session.execute(update(LeaseRow).where(LeaseRow.kind == item.kind).values(free))
            session.execute(update(Round).values(state=RoundState.QUEUED, worker=None))

        workshop.write(restore)
        with leased_work(workshop, item) as other:
            assert other is None
        assert not workshop.write(lambda session: Leases(session).renew(work.hold, 60))
    assert workshop.claim() is not None, "another attempt goes on"
