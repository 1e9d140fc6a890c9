"""Ten thousand jobs of one owner beside one of another's: who is imported next, and what is sent again."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import insert, select, text, update

from mallorn.core import queues
from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState, WorkKind
from mallorn.core.values.fleet import WorkerInfo
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases, LeaseToken, WorkItem
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.workers import Workers
from mallorn.db.tables import Job, LeaseRow
from mallorn.services.control.periodic_tasks import SENT_PER_HAND, STALE_SEC, collect_overdue_messages
from tests.fixtures.database import BOTH
from tests.fixtures.workshop import MODEL, Workshop

MANY = 10_000
OPTIONS = JobOptions().model_dump(mode="json")


def submit(workshop: Workshop, owner: str, count: int = 1, priority: int = 0) -> list[str]:
    """Jobs of an owner, the oldest first, after all that were submitted before."""
    before = workshop.read(lambda session: len(session.scalars(select(Job.id)).all()))
    ids = [f"{before + at:016x}" for at in range(count)]
    same = {"owner": owner, "name": "m", "model_id": MODEL, "target_id": workshop.target_id, "seed": 0}
    same |= {"options": OPTIONS, "state": JobState.QUEUED, "event_count": 0, "priority": priority}
    jobs = [{"id": each, "created_at": float(before + at + 1)} | same for at, each in enumerate(ids)]
    held = {"kind": WorkKind.IMPORT, "attempt": 0, "losses": 0, "deaths": 0, "sent_at": 0.0}
    work = [{"subject": each, "job_id": each} | held for each in ids]
    workshop.write(lambda session: session.execute(insert(Job), jobs))
    workshop.write(lambda session: session.execute(insert(LeaseRow), work))
    return ids


def begin(workshop: Workshop, message: str) -> str:
    """The job whose import a worker holds then."""
    item = WorkItem(WorkKind.IMPORT, message)
    hold = workshop.write(lambda session: WorkItems(session).claim(item, "w", 60))
    return str(hold.item.subject)


def owner_of(workshop: Workshop, job_id: str) -> str:
    return str(workshop.read(lambda session: Jobs(session).get(job_id, None).owner))


@BOTH
def test_one_job_is_imported_soon_beside_ten_thousand_of_another_owner(workshop: Workshop) -> None:
    adas = submit(workshop, "ada", MANY)
    assert begin(workshop, adas[0]) == adas[0]
    (bobs,) = submit(workshop, "bob")
    begun = [begin(workshop, message) for message in adas[1:4]]  # messages come in the order of submission
    assert begun == [bobs, adas[1], adas[2]]
    assert begin(workshop, bobs) == adas[3], (
        "a message whose job was imported for another's wakes for the next"
    )


@pytest.mark.parametrize("owners", ["ada bob", "ada ada ada bob bob cyd", "bob ada ada ada ada ada"])
def test_owners_take_turns_and_every_message_imports_a_job(workshop: Workshop, owners: str) -> None:
    messages = [submit(workshop, owner)[0] for owner in owners.split()]
    begun = [begin(workshop, message) for message in messages]
    assert sorted(begun) == sorted(messages)
    others = len(set(owners.split()))
    named = [owner_of(workshop, job_id) for job_id in begun]
    for owner in set(named):
        assert owner in named[:others]


def test_of_an_owner_the_urgent_job_is_imported_first_and_else_the_oldest(workshop: Workshop) -> None:
    old, young = submit(workshop, "ada", 2)
    (urgent,) = submit(workshop, "ada", priority=1)
    assert [begin(workshop, each) for each in (old, young, urgent)] == [urgent, old, young]


@BOTH
def test_workers_that_begin_at_once_begin_different_imports(workshop: Workshop) -> None:
    messages = submit(workshop, "ada", 4) + submit(workshop, "bob", 4)
    with ThreadPoolExecutor(4) as pool:
        begun = list(pool.map(lambda message: begin(workshop, message), messages))
    assert sorted(begun) == sorted(messages)


def test_an_import_that_came_back_has_its_own_message_and_holds_up_no_other(workshop: Workshop) -> None:
    back, waits = submit(workshop, "ada", 2)
    for attempt in (1, 2, 3):
        assert begin(workshop, back) == back
        hold = LeaseToken(WorkItem(WorkKind.IMPORT, back), attempt, "w")
        assert workshop.write(lambda session, hold=hold: Leases(session).return_work(hold))
    assert begin(workshop, waits) == waits


def sent(workshop: Workshop) -> list[Any]:
    return [
        subject
        for name, subject in collect_overdue_messages(workshop.database)
        if name == queues.IMPORT_MODEL
    ]


@BOTH
def test_what_is_sent_again_is_what_hands_can_take_and_each_owner_has_a_part(workshop: Workshop) -> None:
    adas = submit(workshop, "ada", MANY)
    (bobs,) = submit(workshop, "bob")
    for name in ("w0", "w1", "w2"):
        workshop.write(lambda session, name=name: Workers(session).record_seen(name, "host", WorkerInfo()))
    assert sent(workshop) == [adas[0], bobs, *adas[1 : 3 * SENT_PER_HAND - 1]]
    assert sent(workshop)[0] == adas[3 * SENT_PER_HAND - 1], "and then the next"


@BOTH
def test_rounds_are_withdrawn_beside_ten_thousand_jobs_without_statistics(workshop: Workshop) -> None:
    workshop.write(lambda session: session.execute(text("analyze")))  # the planner expects empty tables
    submit(workshop, "ada", MANY)
    assert workshop.write(lambda session: Rounds(session).cancel_queued()) == []


def test_without_a_worker_little_is_sent_and_nothing_forgotten(workshop: Workshop) -> None:
    jobs, found = submit(workshop, "ada", 7), list[Any]()
    for _ in range(2):
        found += sent(workshop)
    assert found == jobs
    assert sent(workshop) == []
    aged = update(LeaseRow).values(sent_at=LeaseRow.sent_at - STALE_SEC - 1)
    workshop.write(lambda session: session.execute(aged))
    assert len(sent(workshop)) == SENT_PER_HAND
