"""Ten thousand jobs of one owner beside one of another's: who is imported next."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import insert, select, text

from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState, WorkKind
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases, LeaseToken, WorkItem
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.tables import Job, LeaseRow
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
    held = {"kind": WorkKind.IMPORT, "attempt": 0, "losses": 0, "deaths": 0, "due_at": 0.0}
    work = [{"subject": each, "job_id": each} | held for each in ids]
    workshop.write(lambda session: session.execute(insert(Job), jobs))
    workshop.write(lambda session: session.execute(insert(LeaseRow), work))
    return ids


def begin(workshop: Workshop) -> str:
    """The job whose import a worker holds then."""
    hold = workshop.claim(WorkKind.IMPORT)
    assert hold is not None
    return hold.item.subject


def owner_of(workshop: Workshop, job_id: str) -> str:
    return str(workshop.read(lambda session: Jobs(session).get(job_id, None).owner))


@BOTH
def test_one_job_is_imported_soon_beside_ten_thousand_of_another_owner(workshop: Workshop) -> None:
    adas = submit(workshop, "ada", MANY)
    assert begin(workshop) == adas[0]
    (bobs,) = submit(workshop, "bob")
    assert [begin(workshop) for _ in range(4)] == [bobs, *adas[1:4]]


@pytest.mark.parametrize("owners", ["ada bob", "ada ada ada bob bob cyd", "bob ada ada ada ada ada"])
def test_owners_take_turns_and_every_claim_imports_a_job(workshop: Workshop, owners: str) -> None:
    jobs = [submit(workshop, owner)[0] for owner in owners.split()]
    begun = [begin(workshop) for _ in jobs]
    assert sorted(begun) == sorted(jobs)
    others = len(set(owners.split()))
    named = [owner_of(workshop, job_id) for job_id in begun]
    for owner in set(named):
        assert owner in named[:others]


def test_of_an_owner_the_urgent_job_is_imported_first_and_else_the_oldest(workshop: Workshop) -> None:
    old, young = submit(workshop, "ada", 2)
    (urgent,) = submit(workshop, "ada", priority=1)
    assert [begin(workshop) for _ in range(3)] == [urgent, old, young]


@BOTH
def test_workers_that_begin_at_once_begin_different_imports(workshop: Workshop) -> None:
    jobs = submit(workshop, "ada", 4) + submit(workshop, "bob", 4)
    with ThreadPoolExecutor(4) as pool:
        begun = list(pool.map(lambda _: begin(workshop), jobs))
    assert sorted(begun) == sorted(jobs)


def test_an_import_that_came_back_goes_on_before_others_begin(workshop: Workshop) -> None:
    back, waits = submit(workshop, "ada", 2)
    for attempt in (1, 2, 3):
        assert begin(workshop) == back
        hold = LeaseToken(WorkItem(WorkKind.IMPORT, back), attempt, "w")
        assert workshop.write(lambda session, hold=hold: Leases(session).return_work(hold))
    assert begin(workshop) == back
    assert begin(workshop) == waits


@BOTH
def test_rounds_are_withdrawn_beside_ten_thousand_jobs_without_statistics(workshop: Workshop) -> None:
    workshop.write(lambda session: session.execute(text("analyze")))  # the planner expects empty tables
    submit(workshop, "ada", MANY)
    assert workshop.write(lambda session: Rounds(session).cancel_queued()) == []
