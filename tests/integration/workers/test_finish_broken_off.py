"""A finish that waits, stops, dies or loses its job: what is stored, and who goes on."""

from mallorn.core.errors import NoDevice
from mallorn.core.states import JobState, WorkKind
from mallorn.core.values.event import DoneEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases, WorkItem
from mallorn.workers.subprocesses.shutdown import ShutdownRequested
from tests.fixtures.finishing import (
    COMPILED,
    CRASHED,
    report,
)
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish


def test_a_finish_without_a_device_waits_in_words_and_goes_on(workshop, exported):
    job = tuned(workshop)

    def refuse(_slot):
        raise NoDevice

    workshop.bench.before = refuse
    for _ in range(4):
        finish(workshop, job)
    assert workshop.state(job) == JobState.FINISHING
    assert "mallorn device" in workshop.explanation(job)
    workshop.bench.before = lambda slot: None
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert workshop.explanation(job) == "the budget of 32 trials is spent"


def test_a_stopping_worker_leaves_the_finish_to_another(workshop, exported):
    job = tuned(workshop)
    workshop.graph_answers["compile_model"] = ShutdownRequested()
    finish(workshop, job)
    stage = workshop.held(WorkItem(WorkKind.FINISH, job))
    assert (workshop.state(job), stage.holder, stage.losses) == (JobState.FINISHING, None, 0)
    workshop.graph_answers["compile_model"] = COMPILED
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE


def test_a_finish_whose_helper_dies_is_tried_again(workshop, exported):
    job = tuned(workshop)
    write, workshop.graph_answers["write_database"] = workshop.graph_answers["write_database"], CRASHED
    finish(workshop, job)
    assert workshop.state(job) == JobState.FINISHING
    workshop.graph_answers["write_database"] = write
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE


def test_a_job_cancelled_while_it_finishes_stays_cancelled(workshop, exported):
    job = tuned(workshop)

    def cancel(**_params):
        workshop.write(lambda session: Jobs(session).cancel(job, "ada"))
        return COMPILED

    workshop.graph_answers["compile_model"] = cancel
    finish(workshop, job)
    assert workshop.state(job) == JobState.CANCELLED
    assert report(workshop, job) is None
    last = workshop.read(lambda session: Events(session).newest(job, DoneEvent))
    assert last is None


def test_a_worker_that_lost_the_finish_stores_nothing(workshop, exported, check):
    job = tuned(workshop, ("w0",))
    claim = {"state": JobState.FINISHING, "worker": "other", "lease_sec": 60}

    def taken(slot):
        item = WorkItem(WorkKind.FINISH, job)
        held = workshop.hold(item)
        workshop.write(lambda session: Leases(session).renew(held, -1))
        workshop.write(lambda session: Jobs(session).claim_stage(job, *claim.values()))
        workshop.bench.before = lambda slot: None

    workshop.bench.before = taken
    finish(workshop, job)
    assert workshop.rows(kind="finish") == []
    assert exported == []
    assert workshop.state(job) == JobState.FINISHING
    assert len(workshop.rows()) == len(workshop.rows(kind="trial"))
