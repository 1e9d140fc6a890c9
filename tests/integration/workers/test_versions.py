"""Jobs of another version: a worker does what it can read of them, and leaves the rest to others."""

import pytest
from sqlalchemy import update

from db.repositories.jobs import Jobs
from db.repositories.leases import WorkItem
from db.tables import Job
from mallorn.core.states import RoundState


def store(workshop, job, **options):
    kept = workshop.read(lambda session: Jobs(session).get(job, None).options) | options
    workshop.write(lambda session: session.execute(update(Job).where(Job.id == job).values(options=kept)))


def test_keys_of_a_newer_version_stop_no_round(workshop):
    job = workshop.job()
    round_id = workshop.next_round(job)
    store(workshop, job, of_tomorrow="on", evaluator={"number": 3, "of_tomorrow": 1}, simulated={"moon": 1})
    assert workshop.run(round_id) is not None


@pytest.mark.parametrize("options", [{"contention": "sometimes"}, {"evaluator": {"number": 10**6}}])
def test_a_value_of_a_newer_version_goes_back_for_a_newer_worker_and_costs_nothing(workshop, options):
    job = workshop.job()
    round_id = workshop.next_round(job)
    store(workshop, job, **options)
    for _ in range(12):  # however often it comes to one that is not upgraded yet
        assert workshop.run(round_id) is None
    assert workshop.round(round_id).state == RoundState.QUEUED
    held = workshop.held(WorkItem.round(round_id))
    assert (held.losses, held.deaths) == (0, 0)
    assert f"a value of another version for {next(iter(options))}" in workshop.reason(job)
    store(workshop, job, contention="off", evaluator={"number": 3})
    assert workshop.run(round_id) is not None
