"""A device that lies among honest ones changes no schedule that is handed out, and its job names it."""

from dataclasses import replace

import pytest
from sqlalchemy import select

from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import Schedule
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish
from tests.fixtures.workshop import ENDPOINT, MadeUpMeasurer

DEVICES = ("honest-1", "honest-2", "liar")
LIES = {
    "slow": lambda us: 3 * us,
    "fast": lambda us: us / 3,
    "far too fast": lambda us: us / 1e6,
    "turned round": lambda us: 1e4 / us,
    "broken": lambda us: None,
}


@pytest.fixture
def fleet(monkeypatch):
    """Each pass of a contest is of another device; a test says what the liar tells."""
    lies = {"lie": lambda us: us}
    compare = MadeUpMeasurer.measure_in_passes

    def spread(self, *asked):
        *rest, passes = asked
        found = []
        for number in range(passes):
            name = DEVICES[number % len(DEVICES)]
            for result in compare(self, *rest, 1):
                told = replace(result, endpoint=replace(ENDPOINT, name=name))
                found.append(lying(told, lies["lie"]) if name == "liar" else told)
        return found

    monkeypatch.setattr(MadeUpMeasurer, "measure_in_passes", spread)
    return lies


def lying(result, lie):
    us = lie(result.trial.latency_us)
    if us is None:
        failed = Trial(result.trial.candidate, Outcome.RUN_ERROR, error="nonsense")
        return replace(result, trial=failed)
    return replace(result, trial=replace(result.trial, run_us=(us,), latency_us=us))


def handed_out(workshop, job):
    """The trace of the job's newest schedule."""
    newest = select(Schedule.trace).where(Schedule.job_id == job).order_by(Schedule.id.desc()).limit(1)
    return workshop.read(lambda session: session.scalar(newest))


def warned(workshop, job):
    return [each.source for each in workshop.read(lambda session: Jobs(session).get(job, None).warnings)]


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_one_liar_of_three_changes_no_winner(workshop, exported, fleet, lie):
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    honest = handed_out(workshop, job)
    assert (workshop.state(job), warned(workshop, job)) == (JobState.DONE, [])
    fleet["lie"] = lie
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.DONE], JobState.FINISHING))
    finish(workshop, job)
    assert (workshop.state(job), handed_out(workshop, job)) == (JobState.DONE, honest)
    assert warned(workshop, job) == ["device liar"]
