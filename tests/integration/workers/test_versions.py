"""Jobs of another version: a worker that does not know what they ask for leaves them to others."""

import pytest
from sqlalchemy import update

from mallorn.core.states import RoundState
from mallorn.core.version import VERSION
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import WorkItem
from mallorn.db.tables import Job


def store(workshop, job, **options):
    kept = workshop.read(lambda session: Jobs(session).get(job, None).options) | options
    workshop.write(lambda session: session.execute(update(Job).where(Job.id == job).values(options=kept)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"contention": "sometimes"}, "cannot read the job's contention"),
        ({"evaluator": {"number": 10**6}}, "cannot read the job's evaluator"),
        ({"of_tomorrow": "on"}, f"version {VERSION} does not know these options of this job: of_tomorrow"),
        (
            {"simulated": {"moon": 1}},
            f"version {VERSION} does not know these options of this job: simulated.moon",
        ),
    ],
)
def test_what_a_newer_version_asks_for_goes_back_for_a_newer_worker_and_costs_nothing(
    workshop, monkeypatch, options, words
):
    job = workshop.job()
    round_id = workshop.next_round(job)
    store(workshop, job, **options)
    for _ in range(12):  # however often it comes to one that is not upgraded yet
        assert workshop.run(round_id) is None
    assert workshop.round(round_id).state == RoundState.QUEUED
    held = workshop.held(WorkItem.for_round(round_id))
    assert (held.losses, held.deaths) == (0, 0)
    assert words in workshop.explanation(job)
    # As if this worker had been upgraded.
    monkeypatch.setattr("mallorn.core.job_options.RETIRED", {"of_tomorrow"})
    store(workshop, job, contention=False, evaluator={"number": 3}, simulated={})
    assert workshop.run(round_id) is not None
