"""What is wrong with one job costs that job alone: the others of its target are planned, told and woken."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from mallorn.core import queues
from mallorn.core.errors import Unavailable
from mallorn.core.states import JobState
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import Job
from mallorn.services.control import plan_target as planning
from mallorn.services.control.plan_target import plan_target
from tests.fixtures.database import BOTH
from tests.integration.control.conftest import Yard


def store(yard: Yard, job: str, **options: Any) -> None:
    """Let another version have stored these options."""
    kept = yard.read(lambda session: Jobs(session).get(job, None).options) | options
    yard.write(lambda session: session.execute(update(Job).where(Job.id == job).values(options=kept)))


def raising(job: str, error: BaseException) -> Callable[..., Any]:
    """A turn that is as ever, but for one job."""
    take_turn = planning.plan_job

    def turn(session: Any, job_id: str, *rest: Any, **options: Any) -> Any:
        if job_id == job:
            raise error
        return take_turn(session, job_id, *rest, **options)

    return turn


@pytest.fixture
def two(yard: Yard) -> tuple[Yard, str, str]:
    """The first of two jobs goes before the other."""
    yard.devices(2)
    bad, good = yard.job(), yard.job()
    yard.write(lambda s: s.execute(update(Job).where(Job.id == good).values(share_pass=9.0, owner_pass=9.0)))
    return yard, bad, good


@BOTH
@pytest.mark.parametrize("error", [KeyError("row"), ValueError("a float is no int"), AssertionError()])
def test_a_job_whose_turn_raises_rests_in_words_and_the_others_have_theirs(two, monkeypatch, error):
    yard, bad, good = two
    monkeypatch.setattr(planning, "plan_job", raising(bad, error))
    opened = yard.opened(bad)
    assert {yard.owner_of(each) for each in opened} == {good}
    assert yard.workshop.state(bad) == JobState.PAUSED
    assert f"planning this job raised {type(error).__name__}" in yard.workshop.explanation(bad)
    assert f"mallorn resume {bad}" in yard.workshop.explanation(bad)


def test_a_job_that_was_set_aside_goes_on_when_control_is_mended(two, monkeypatch):
    yard, bad, _good = two
    with monkeypatch.context() as patch:
        patch.setattr(planning, "plan_job", raising(bad, KeyError("row")))
        yard.plan(bad)
    yard.write(lambda session: Jobs(session).resume(bad, None))
    yard.devices(4)
    assert bad in {yard.owner_of(each) for each in yard.opened(bad)}


def test_a_database_that_goes_away_is_nobodys_fault_and_rounds_that_were_opened_are_told(two, monkeypatch):
    yard, first, away = two
    monkeypatch.setattr(planning, "plan_job", raising(away, Unavailable("gone")))
    yard.devices(8)
    messages = plan_target(yard.workshop.database, first, "control")
    assert [name for name, *_ in messages or ()].count(queues.WORK) == len(yard.open_rounds()) > 0
    assert {yard.workshop.state(job) for job in (first, away)} == {JobState.TUNING}


@BOTH
@pytest.mark.parametrize("leave", [SystemExit(1), type("Odd", (BaseException,), {})()])
def test_a_policy_that_ends_its_process_fails_its_job_alone(two, monkeypatch, leave):
    yard, bad, good = two

    class Policy:
        def next(self, *_given: Any) -> Any:
            raise leave

        __getattr__ = next

    store(yard, bad, policy="tests.integration.control.test_alone:Policy")
    monkeypatch.setitem(globals(), "Policy", Policy)
    monkeypatch.setattr("mallorn.core.registry._import_user_class", lambda *_: Policy)
    monkeypatch.setattr("mallorn.services.control.plan_job.check_allowed_classes", lambda *_: None)
    opened = yard.opened(bad)
    assert yard.workshop.state(bad) == JobState.FAILED
    assert "test_alone:Policy raised" in yard.workshop.explanation(bad)
    assert {yard.owner_of(each) for each in opened} == {good}


def test_a_job_with_an_option_of_a_newer_version_waits_for_control_of_that_version(two):
    yard, newer, good = two
    store(yard, newer, of_tomorrow=1, evaluator={"number": 5, "of_tomorrow": 2})
    assert {yard.owner_of(each) for each in yard.opened(newer)} == {good}
    assert yard.workshop.state(newer) == JobState.TUNING
    assert (
        "does not know these options of this job: evaluator.of_tomorrow, of_tomorrow;"
        in yard.workshop.explanation(newer)
    )
    kept = yard.read(lambda session: Jobs(session).get(newer, None).options)
    assert (kept["of_tomorrow"], kept["evaluator"]["of_tomorrow"]) == (1, 2)


def test_a_value_of_a_newer_version_waits_for_control_of_that_version(two):
    yard, newer, good = two
    store(yard, newer, contests="by tomorrow's means")
    assert {yard.owner_of(each) for each in yard.opened(newer)} == {good}
    assert yard.workshop.state(newer) == JobState.TUNING
    assert "cannot read the job's contests" in yard.workshop.explanation(newer)
    yard.devices(8)
    store(yard, newer, contests="apart")  # which this one knows: as if it had been upgraded
    assert newer in {yard.owner_of(each) for each in yard.opened(newer)}


def test_options_of_an_older_version_are_as_by_default(two):
    yard, older, _good = two
    lacking = {"measurer": "made-up", "policy": "round-robin"}
    yard.write(lambda s: s.execute(update(Job).where(Job.id == older).values(options=lacking)))
    assert older in {yard.owner_of(each) for each in yard.opened(older)}
