"""A plan is computed without a lock on its job, and stored only if the job is as it was."""

import pytest
from sqlalchemy import update

from mallorn.core.states import JobState
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.learning_curves import LearningCurves
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import TaskHistories
from mallorn.db.tables import Job
from mallorn.services.control.plan_job import draft_plan, plan_job
from mallorn.services.control.plan_target import survey
from tests.fixtures.database import BOTH


@pytest.fixture
def begun(yard):
    """A job whose first round is closed, so that it has a context and families."""
    job = yard.job()
    oldest, *_ = yard.opened(job)
    yard.close(oldest)
    return yard, job


@pytest.fixture
def reads(monkeypatch):
    """The jobs whose histories are read."""
    jobs, read = [], TaskHistories.of

    def noted(self, job, **snapshot):
        jobs.append(job.id)
        return read(self, job, **snapshot)

    monkeypatch.setattr(TaskHistories, "of", noted)
    return jobs


def store(yard, job, draft):
    def devices(session):
        return survey(session, yard.workshop.target_id, FairShares(session).job_to_plan(job).target).devices

    listed = yard.read(devices)
    return yard.write(lambda session: plan_job(session, job, 1, listed, draft=draft, wait_limit=None))


@BOTH
def test_a_draft_is_stored_without_reading_again(begun, reads):
    yard, job = begun
    draft = draft_plan(yard.workshop.database, job, 1)
    assert reads == [job]
    assert store(yard, job, draft).opened == 1
    assert reads == [job]


def close_a_round(yard, job):
    yard.close(min(row.id for row in yard.open_rounds() if row.job_id == job))


def spend_the_budget(yard, job):
    yard.write(lambda session: session.execute(update(Job).where(Job.id == job).values(trials=1)))


def plan_meanwhile(yard, job):
    store(yard, job, None)


@pytest.mark.parametrize("change", [close_a_round, spend_the_budget, plan_meanwhile])
def test_a_draft_of_a_job_that_has_changed_is_computed_again(begun, reads, change):
    yard, job = begun
    draft = draft_plan(yard.workshop.database, job, 1)
    change(yard, job)
    reads.clear()
    opened = store(yard, job, draft).opened
    assert reads == [job]
    assert opened == (0 if change is spend_the_budget else 1)
    indices = [row.index for row in yard.open_rounds()]
    assert len(indices) == len(set(indices))


def test_a_draft_of_a_job_that_was_paused_opens_nothing(begun):
    yard, job = begun
    draft = draft_plan(yard.workshop.database, job, 1)
    yard.write(lambda session: Jobs(session).pause(job, "ada"))
    assert store(yard, job, draft).opened == 0
    assert yard.workshop.state(job) == JobState.PAUSED


def test_nothing_is_drafted_for_a_job_that_has_no_context_or_may_open_nothing(yard, reads):
    job = yard.job()
    assert draft_plan(yard.workshop.database, job, 1) is None
    yard.plan(job)
    reads.clear()
    assert draft_plan(yard.workshop.database, job, 0) is None
    assert reads == []


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_history_is_read_while_another_process_locks_the_job(begun):
    yard, job = begun
    with yard.workshop.database.transaction() as session:
        Rounds(session).lock_jobs([job])
        assert draft_plan(yard.workshop.database, job, 1) is not None


def test_what_a_plan_read_is_settled_after_it(begun):
    yard, job = begun
    yard.plan(job)

    def unsettled(session):
        return LearningCurves(session).rounds(Jobs(session).get(job, None))

    assert all(one.results.state.is_open for one in yard.read(unsettled))


def test_a_plan_counts_even_if_its_rounds_cannot_be_settled(begun, monkeypatch):
    yard, job = begun
    monkeypatch.setattr(LearningCurves, "settle", lambda self, job: 1 / 0)
    assert len(yard.opened(job)) == 1
    assert yard.workshop.state(job) == JobState.TUNING
