"""Jobs that measure no candidates: no rounds, and no device for those that run nothing."""

import pytest
from sqlalchemy import update

from mallorn.core.states import JobState, Waiting
from mallorn.core.targets import parse_target
from mallorn.db.repositories.jobs import Jobs, JobsWaitingForDevice
from mallorn.db.tables import Job


def asked(yard, mode, **where):
    """A job of a mode, as the coordinator writes it."""
    job = yard.job(trials=0, **where)
    options = yard.read(lambda session: Jobs(session).get(job, None).options) | {"mode": mode}
    yard.write(lambda session: session.execute(update(Job).where(Job.id == job).values(options=options)))
    return job


@pytest.mark.parametrize("mode", ["one-shot", "zero-shot"])
def test_what_is_known_answers_at_once(yard, mode):
    yard.devices(2)
    job = asked(yard, mode)
    yard.plan(job)
    assert yard.workshop.state(job) == JobState.FINISHING
    assert yard.read(lambda session: Jobs(session).get(job, None).tuning_ended) == "what is known answers"
    assert yard.read(lambda session: Jobs(session).get(job, None).context_id) is not None


def test_zero_shot_needs_no_device(yard):
    nowhere = yard.target(cores=9)
    job = asked(yard, "zero-shot", target_id=nowhere)
    assert yard.read(lambda session: list(JobsWaitingForDevice(session).targets())) == []
    yard.plan(job)
    assert yard.workshop.state(job) == JobState.FINISHING


def test_nobody_tells_zero_shot_that_it_waits_for_a_device(yard):
    job = asked(yard, "zero-shot", target_id=yard.target(cores=9))
    nine = parse_target('{"kind":"llvm","num-cores":9}').text
    yard.write(lambda session: JobsWaitingForDevice(session).set_waiting(nine, Waiting("waits")))
    assert yard.workshop.explanation(job) == ""


def test_one_shot_waits_for_the_device_that_checks_it(yard):
    job = asked(yard, "one-shot", target_id=yard.target(cores=9))
    assert yard.plan(job) == []
    assert "waits for a device" in yard.workshop.explanation(job)
    assert len(yard.read(lambda session: list(JobsWaitingForDevice(session).targets()))) == 1
