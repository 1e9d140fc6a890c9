"""Statements that must hold for the stored rows: each planted fault breaks its own, and no other."""

from collections.abc import Callable

import pytest
from sqlalchemy import ScalarSelect, Update, select, update

from mallorn.core.states import JobState
from mallorn.core.values.event import SubmittedEvent
from mallorn.db.repositories.invariants import QUERIES, Broken, Invariants
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.tables import Job, LeaseRow, Measurement, Round, Schedule
from tests.fixtures.rows import Rows
from tests.fixtures.schedules import promote


class StoredJob(Rows):
    """A job with a closed round of two trials, a schedule, and an open round."""

    def __init__(self, rows: Rows) -> None:
        self.__dict__.update(rows.__dict__)
        self.closed = self.closed_round(self.ok(0), self.ok(1, 12.0), self.failed(2))
        self.open, _ = self.claimed_round("w1")
        promote(self, "w0", 9.0)
        self.write(
            lambda session: Events(session).append(self.job_id, SubmittedEvent(trials=100, minutes=None))
        )

    def broken(self, ended_sec: float | None = None) -> Broken:
        return self.read(lambda session: Invariants(session).find_broken(ended_sec))

    def plant(self, fault: Update) -> None:
        self.write(lambda session: session.execute(fault))


@pytest.fixture
def job(rows: Rows) -> StoredJob:
    return StoredJob(rows)


def trial(job: StoredJob, slot: int) -> Update:
    return update(Measurement).where(Measurement.round_id == job.closed, Measurement.slot == slot)


def decisions_of(job: StoredJob, slot: int) -> ScalarSelect[bytes]:
    query = select(Measurement.decisions).where(Measurement.round_id == job.closed)
    return query.where(Measurement.slot == slot).scalar_subquery()


def lease(round_id: int) -> Update:
    return update(LeaseRow).where(LeaseRow.kind == "round", LeaseRow.subject == str(round_id))


FAULTS: dict[str, Callable[[StoredJob], Update]] = {
    "a trial has a round of its job": lambda job: trial(job, 2).values(round_id=None),
    "a successful trial has a time, another has none": lambda job: trial(job, 1).values(latency_us=None),
    "a round has no more trials than candidates": lambda job: (
        update(Round).where(Round.id == job.closed).values(size=2)
    ),
    "a round has each candidate once": lambda job: trial(job, 1).values(decisions=decisions_of(job, 0)),
    "an open round is held or can be claimed": lambda job: lease(job.open).values(until=None, due_at=None),
    "a round that is over is held by nobody": lambda job: lease(job.closed).values(due_at=1.0),
    "a settled round is not open": lambda job: update(Round).where(Round.id == job.open).values(settled=True),
    "a job that has ended has no open round": lambda job: update(Job).values(
        state=JobState.DONE, finished_at=2e9
    ),
    "a job has a time of its end exactly if it has ended": lambda _job: update(Job).values(finished_at=2e9),
    "a job spends no more trials than its budget": lambda _job: update(Job).values(trials=2),
    "a job's events are counted": lambda _job: update(Job).values(event_count=0),
    "a schedule is a timed measurement of its workload and target": lambda job: update(Schedule).values(
        workload_id=job.workloads["w1"]
    ),
}


def test_each_invariant_has_a_planted_fault() -> None:
    assert FAULTS.keys() == QUERIES.keys()


def test_rows_as_the_service_writes_them_break_nothing(job: StoredJob) -> None:
    assert job.broken() == job.broken(ended_sec=60.0) == {}


@pytest.mark.parametrize("invariant", FAULTS)
def test_a_broken_invariant_is_named_with_a_row(job: StoredJob, invariant: str) -> None:
    job.plant(FAULTS[invariant](job))
    broken = job.broken()
    assert broken.keys() == {invariant}
    assert all(row.split()[0] in ("measurement", "round", "job", "schedule") for row in broken[invariant])


def test_jobs_that_ended_long_ago_are_left_out(job: StoredJob) -> None:
    job.plant(update(Job).values(finished_at=1.0))
    assert job.broken(ended_sec=3600.0) == {}
    assert job.broken()
