"""What a round leaves in the database, however it ends. Compiler and device are made up, the rest is real."""

import json
import logging
import math
from contextlib import ExitStack
from socket import gethostname

import numpy as np
import pytest

from mallorn.core.errors import (
    HostFault,
    InvalidTarget,
    NoDevice,
    StorageFull,
    Unavailable,
    UnknownName,
    Unschedulable,
)
from mallorn.core.log_setup import JsonLines
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, RoundState
from mallorn.core.targets import NATIVE
from mallorn.core.values.fleet import WorkerInfo
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.devices import Devices
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases, WorkItem
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.workers import Workers
from mallorn.services.coordinator.fleet.routes import state_of_worker
from mallorn.workers import celery_tasks as tasks
from mallorn.workers.process import places
from mallorn.workers.process.lease_renewal import LeaseKeeper
from mallorn.workers.round import run
from mallorn.workers.round.feature_lookup import FeatureLookup
from mallorn.workers.round.loaded_round import load_round
from mallorn.workers.round.propose import propose
from mallorn.workers.round.run import Commits
from mallorn.workers.subprocesses.errors import ChildCrashed
from mallorn.workers.subprocesses.shutdown import STOP
from tests.fixtures.database import BACKENDS

BATCH = 4  # results of a commit


@pytest.fixture(autouse=True)
def commits_by_count(monkeypatch):
    """Commits follow each BATCH results, however fast this machine is."""
    monkeypatch.setattr(run, "RESULTS_PER_COMMIT", BATCH)
    monkeypatch.setattr(places, "COMMIT_SEC", math.inf)


class Killed(BaseException):
    """SIGKILL, as far as a process can play it on itself."""


def after(count, action):
    """Do something before the result that follows `count` others."""
    seen = []

    def before(slot):
        if len(seen) == count:
            action()
        seen.append(slot)

    return before


def kill_in(workshop, round_id, measured, monkeypatch):
    """Run a round in a worker that is killed after some measurements: nothing of it is left but its rows."""

    def die():
        patch.setattr(Commits, "flush", lambda *_, **__: None)  # the dead clean up nothing
        raise Killed

    with monkeypatch.context() as patch:
        workshop.bench.before = after(measured, die)
        with pytest.raises(Killed):
            workshop.run(round_id)
    workshop.bench.before = lambda slot: None
    take_back(workshop, round_id)


def take_back(workshop, round_id):
    """Let the lease run out, and reap."""
    item = WorkItem.for_round(round_id)
    held = workshop.hold(item)
    workshop.write(lambda session: Leases(session).renew(held, -1))
    job_id = workshop.round(round_id).job_id
    workshop.write(lambda session: WorkItems(session).end_expired_leases(job_id))


def proposals_of(workshop, round_id):
    with workshop.database.session() as session:
        context = load_round(session, round_id)
    return propose(FeatureLookup(workshop.database, workshop.compiler), context)


def test_a_round_measures_every_slot_once_and_closes(workshop):
    round_id = workshop.next_round(workshop.job())
    closed = workshop.run(round_id)
    assert closed is not None
    assert [row.slot for row in workshop.rows(round_id=round_id)] == list(range(8))
    assert set(workshop.bench.executions.values()) == {1}
    assert workshop.round(round_id).state == RoundState.DONE


@pytest.mark.parametrize("search", ["random", "evolutionary"])
def test_after_a_kill_the_same_is_proposed_and_only_missing_slots_are_measured(workshop, monkeypatch, search):
    job = workshop.job(("w0",), search=search)
    workshop.run(workshop.next_round(job))  # so that there is a history
    round_id = workshop.next_round(job)
    before = workshop.bench.executions.copy()
    kill_in(workshop, round_id, measured=6, monkeypatch=monkeypatch)
    first, *_ = proposals_of(workshop, round_id)
    committed = workshop.rows(round_id=round_id)
    assert len(committed) == BATCH

    assert workshop.run(round_id) is not None
    again, *_ = proposals_of(workshop, round_id)
    assert again == first
    assert [row.decisions for row in workshop.rows(round_id=round_id)][:BATCH] == [
        row.decisions for row in committed
    ]
    fresh = workshop.bench.executions - before
    kept = {slot.candidate.key for slot in first if slot.slot in {row.slot for row in committed}}
    assert all(count == 1 for (_, key), count in fresh.items() if key in kept)
    assert sum(count - 1 for count in fresh.values()) == 6 - BATCH


def test_results_are_committed_before_many_are_pending(workshop):
    round_id = workshop.next_round(workshop.job(round_size=24, trials=64))
    pending = []

    def look(slot):
        pending.append(len(workshop.bench.executions) - len(workshop.rows(round_id=round_id)))

    workshop.bench.before = look
    workshop.run(round_id)
    assert max(pending) <= BATCH


def test_a_result_that_comes_long_after_the_last_commit_is_committed_at_once(workshop, monkeypatch):
    monkeypatch.setattr(places, "COMMIT_SEC", 0.0)
    round_id = workshop.next_round(workshop.job())
    committed = []
    workshop.bench.before = lambda slot: committed.append(len(workshop.rows(round_id=round_id)))
    workshop.run(round_id)
    assert committed == list(range(8))


@pytest.mark.parametrize("database_url", BACKENDS[1:], indirect=True)
def test_a_commit_waits_for_no_transaction_that_holds_the_job_and_its_event_comes_later(workshop):
    job = workshop.job(round_size=2 * BATCH)
    round_id = workshop.next_round(job)
    committed = []

    with ExitStack() as other:

        def hold_the_job(slot):
            committed.append(len(workshop.rows(round_id=round_id)))
            if len(committed) == 1:
                Jobs(other.enter_context(workshop.database.transaction())).lock_jobs([job])
            elif len(committed) == 2 * BATCH:
                other.close()

        workshop.bench.before = hold_the_job
        workshop.run(round_id)
    assert committed[BATCH] == BATCH, "the first commit waited, or was left out"
    with workshop.database.session() as session:
        events = Events(session).after(job, 0)
    announced = [event.payload["trials"] for event in events if event.kind == "measured"]
    assert announced == [2 * BATCH]


def test_a_round_that_was_taken_away_commits_nothing_more(workshop):
    job = workshop.job()
    round_id = workshop.next_round(job)

    workshop.bench.before = after(6, lambda: take_back(workshop, round_id))
    assert workshop.run(round_id) is None
    assert len(workshop.rows(round_id=round_id)) == BATCH
    assert workshop.bench.closed == 1, "the measurer was left at work"
    assert workshop.round(round_id).state == RoundState.QUEUED


def test_results_outlast_a_database_that_is_away_for_longer_than_the_lease(workshop, monkeypatch):
    round_id = workshop.next_round(workshop.job(round_size=BATCH, trials=64))
    away = []
    flush = Commits.flush

    def unanswered_once(commits, is_last=False):
        if commits.pending and not away:
            away.append(len(commits.pending))
            raise Unavailable("the database does not answer")
        flush(commits, is_last)

    monkeypatch.setattr(Commits, "flush", unanswered_once)
    monkeypatch.setattr(LeaseKeeper, "is_lost", property(lambda _: bool(away)))
    workshop.run(round_id)
    assert away == [BATCH]
    assert len(workshop.rows(round_id=round_id)) == BATCH
    assert workshop.round(round_id).state == RoundState.DONE


def test_a_cancelled_round_stops(workshop):
    job = workshop.job()
    round_id = workshop.next_round(job)

    def cancel():
        workshop.write(lambda session: (Jobs(session).cancel(job, "ada"), Rounds(session).cancel_open(job)))

    workshop.bench.before = after(1, cancel)
    assert workshop.run(round_id) is None
    assert workshop.rows(round_id=round_id) == []
    assert workshop.round(round_id).state == RoundState.CANCELLED


def refuse(error):
    def raise_it():
        raise error

    return raise_it


def test_without_a_device_the_round_is_handed_back_and_the_job_says_why(workshop):
    job = workshop.job()
    round_id = workshop.next_round(job)
    for _ in range(5):
        workshop.bench.before = after(0, refuse(NoDevice()))
        assert workshop.run(round_id) is None
    assert workshop.round(round_id).state == RoundState.QUEUED
    assert workshop.held(WorkItem.for_round(round_id)).losses == 0
    assert "mallorn device" in workshop.explanation(job)

    workshop.bench.before = lambda slot: None
    assert workshop.run(round_id) is not None
    assert workshop.explanation(job) == ""


def test_a_device_that_leaves_in_the_middle_keeps_what_it_measured(workshop):
    round_id = workshop.next_round(workshop.job())
    workshop.bench.before = after(6, refuse(NoDevice()))
    workshop.run(round_id)
    assert len(workshop.rows(round_id=round_id)) == 6
    workshop.bench.before = lambda slot: None
    workshop.run(round_id)
    assert set(workshop.bench.executions.values()) == {1}


def test_waiting_does_not_overwrite_why_a_job_is_paused(workshop):
    job = workshop.job()
    round_id = workshop.next_round(job)

    def pause():
        workshop.write(lambda session: Jobs(session).pause(job, "ada"))
        raise NoDevice

    workshop.bench.before = after(0, pause)
    workshop.run(round_id)
    assert workshop.explanation(job) == "paused by its owner"


def test_a_stopping_worker_commits_what_it_has_and_hands_the_round_back(workshop, monkeypatch):
    round_id = workshop.next_round(workshop.job())
    monkeypatch.setattr(STOP, "requested", type(STOP.requested)())
    workshop.bench.before = after(5, STOP.request_stop)
    assert workshop.run(round_id) is None
    assert len(workshop.rows(round_id=round_id)) == 5, (
        "the result that came while stopping may be a victim of it"
    )
    assert workshop.round(round_id).state == RoundState.QUEUED
    assert workshop.held(WorkItem.for_round(round_id)).losses == 0
    monkeypatch.undo()


def test_a_workload_that_kills_the_compiler_is_given_up_after_three_times(workshop):
    job = workshop.job()
    round_id = workshop.next_round(job)
    workshop.maker.error = ChildCrashed("compiler died of SIGSEGV")
    for _ in range(3):
        assert workshop.run(round_id) is None
    assert workshop.round(round_id).state == RoundState.POISON
    assert "SIGSEGV" in workshop.round(round_id).error


def test_what_tvm_refuses_to_schedule_is_not_tried_again(workshop):
    round_id = workshop.next_round(workshop.job())
    workshop.maker.error = Unschedulable("ScheduleError: no block is named padded")
    assert workshop.run(round_id) is None
    assert workshop.round(round_id).state == RoundState.POISON
    assert "padded" in workshop.round(round_id).error


def test_what_cannot_be_done_as_asked_for_fails_the_job_wherever_it_is_found_out(workshop):
    job = workshop.job()
    round_id = workshop.next_round(job)
    workshop.maker.error = InvalidTarget("cores: -1", hint="give it some")
    assert workshop.run(round_id) is None
    assert (workshop.state(job), workshop.explanation(job)) == (JobState.FAILED, "cores: -1\ngive it some")


@pytest.mark.parametrize("error", [Unavailable("no recording"), UnknownName("unknown search 'new'")])
def test_what_this_worker_lacks_another_may_have(workshop, error):
    job = workshop.job()
    round_id = workshop.next_round(job)
    workshop.bench.before = after(0, refuse(error))
    assert workshop.run(round_id) is None
    assert workshop.round(round_id).state == RoundState.QUEUED
    assert workshop.held(WorkItem.for_round(round_id)).losses == 0
    assert workshop.explanation(job) == error.message


def stored_model(workshop, seed):
    from mallorn.costmodels.random import RandomModel

    model = RandomModel()
    model.fit(np.empty((0, 1), "f"), np.empty(0, "f"), np.empty(0, "i"), seed=seed)
    new = NewCostModel("operator:matmul", workshop.target_id, "random", 0, 8, {}, model.save())
    return workshop.write(lambda session: CostModels(session).add(new)).id


def test_the_first_claim_settles_the_model_and_later_attempts_use_it(workshop):
    job = workshop.job(("w0",), search="evolutionary")
    workshop.run(workshop.next_round(job))  # so that it is more than the defaults
    round_id = workshop.next_round(job)
    first = stored_model(workshop, seed=1)
    workshop.bench.before = after(0, refuse(NoDevice()))
    workshop.run(round_id)
    assert workshop.round(round_id).cost_model_id == first
    stored_model(workshop, seed=2)
    workshop.bench.before = lambda slot: None
    workshop.run(round_id)
    assert workshop.round(round_id).cost_model_id == first
    predicted = [row.predicted for row in workshop.rows(round_id=round_id)]
    assert predicted == [proposal.predicted for proposal in proposals_of(workshop, round_id)[1]]
    assert any(predicted), "the model was not asked"


def test_a_round_sees_only_what_compares_with_its_own_times(workshop):
    workshop.bench.outcomes = {0: Outcome.BUILD_ERROR}
    workshop.work(workshop.job(("w0",), trials=8))
    other = workshop.job(("w0",), trials=8, evaluator={"number": 5})
    round_id = workshop.next_round(other)
    with workshop.database.session() as session:
        history = load_round(session, round_id).history
    assert {trial.outcome for trial in history} == {Outcome.BUILD_ERROR}, "a build error is one everywhere"


def test_a_job_with_the_same_context_measures_nothing_again(workshop):
    workshop.work(workshop.job(("w0",), trials=16))
    workshop.work(workshop.job(("w0",), trials=16, seed=0))
    assert set(workshop.bench.executions.values()) == {1}


def test_what_a_worker_logs_of_a_round_names_job_round_and_attempt(workshop, monkeypatch):
    lines = []

    class Kept(logging.Handler):
        def emit(self, record):
            lines.append(json.loads(JsonLines("worker").format(record)))

    kept = Kept()
    logging.getLogger("mallorn.workers.process.leased_work").addHandler(kept)
    monkeypatch.setattr(tasks, "runtime", lambda: workshop)
    job = workshop.job()
    round_id = workshop.next_round(job)
    workshop.bench.before = after(0, refuse(NoDevice()))
    workshop.roll_call.ability = workshop.ability()
    tasks.do_work(NATIVE)
    logging.getLogger("mallorn.workers.process.leased_work").removeHandler(kept)
    told = {name: lines[0][name] for name in ("level", "job", "round", "attempt")}
    assert told == {"level": "warning", "job": job, "round": round_id, "attempt": 1}


def test_facts_of_leased_work_are_in_no_log_line_after_its_end(workshop):
    record = logging.LogRecord(__name__, logging.INFO, __file__, 1, "idle", None, None)
    line_before = JsonLines("worker").format(record)
    workshop.closed_round(workshop.job(["w0"], trials=16))
    assert JsonLines("worker").format(record) == line_before


def test_what_the_host_lacks_costs_no_trials_and_pauses_the_job_with_one_sentence(workshop):
    job = workshop.job(("w0",), trials=16)
    round_id = workshop.next_round(job)

    def refuse(_slot):
        raise HostFault("No linker here", hint="apt-get install gcc")

    workshop.bench.before = refuse
    for _ in range(2):
        assert workshop.run(round_id) is None
        assert workshop.state(job) == "tuning", "another worker may have what this one lacks"
    assert workshop.run(round_id) is None
    assert workshop.rows() == []
    assert workshop.state(job) == "paused"
    told = f"on {gethostname()}: No linker here"
    assert workshop.explanation(job) == f"{told}\napt-get install gcc   (then: mallorn resume {job})"
    workshop.bench.before = lambda slot: None
    workshop.write(lambda session: Jobs(session).resume(job, "ada"))
    workshop.work(job)
    assert len(workshop.rows()) == 16, "the round that was given up left no mark on its task"


def lacking(_slot):
    raise HostFault("No linker here", hint="apt-get install gcc")


def is_there(workshop, *names):
    for name in names:
        workshop.write(
            lambda session, name=name: Workers(session).record_seen(name, f"host of {name}", WorkerInfo())
        )


def run_by(workshop, name, round_id, before=lambda slot: None):
    workshop.name, workshop.bench.before = name, before
    return workshop.run(round_id)


def test_one_sick_worker_pauses_no_job_while_another_is_there(workshop):
    job = workshop.job(("w0",), trials=8)
    round_id = workshop.next_round(job)
    is_there(workshop, "sick", "well")
    for _ in range(12):
        assert run_by(workshop, "sick", round_id, lacking) is None
        assert workshop.state(job) == "tuning"
        assert workshop.round(round_id).state == RoundState.QUEUED
    assert workshop.explanation(job).startswith(f"on {gethostname()}: No linker here")
    assert workshop.held(WorkItem.for_round(round_id)).losses == 0, "it is no loss of the round's"
    assert run_by(workshop, "well", round_id) is not None
    assert len(workshop.rows(round_id=round_id)) == workshop.round(round_id).size


def test_three_machines_that_lack_it_pause_the_job(workshop):
    job = workshop.job(("w0",))
    round_id = workshop.next_round(job)
    is_there(workshop, "a", "b", "c", "d")
    for name in ("a", "b", "a", "b"):
        run_by(workshop, name, round_id, lacking)
        assert workshop.state(job) == "tuning"
    run_by(workshop, "c", round_id, lacking)
    assert workshop.state(job) == "paused"


@pytest.mark.parametrize("other", [{"missing_resource": "no linker"}, {"stopped": True}, {"can_tune": False}])
def test_who_takes_no_rounds_is_not_waited_for(workshop, other):
    job = workshop.job(("w0",))
    round_id = workshop.next_round(job)
    is_there(workshop, "sick")
    workshop.write(lambda session: Workers(session).record_seen("other", "elsewhere", WorkerInfo(**other)))
    for _ in range(3):
        run_by(workshop, "sick", round_id, lacking)
    assert workshop.state(job) == "paused"


@pytest.mark.parametrize("error", [HostFault("No linker here"), StorageFull("the disk of /tmp is full")])
def test_a_worker_whose_host_is_at_fault_rests_and_names_it(workshop, error, monkeypatch):
    job = workshop.job(("w0",))
    ill = []
    monkeypatch.setattr(workshop.health, "record_fault", ill.append)
    workshop.bench.before = after(0, refuse(error))
    workshop.run(workshop.next_round(job))
    assert ill == [error]
    assert workshop.explanation(job).startswith(f"on {gethostname()}: ")


def test_a_worker_that_rests_says_so_in_its_row(workshop):
    workshop.roll_call.report_pause("no linker")
    workshop.roll_call.report_worker()
    (row,) = workshop.read(lambda session: Workers(session).list())
    assert (row.info.missing_resource, row.busy_with) == ("no linker", "resting: no linker")
    assert state_of_worker(row, 0.0) == "idle"
    workshop.roll_call.report_pause("")
    workshop.roll_call.report_worker()
    (row,) = workshop.read(lambda session: Workers(session).list())
    assert (row.info.missing_resource, row.busy_with) == ("", "")


def test_made_up_times_of_a_wrapper_are_not_stored_under_a_real_target(workshop):
    job = workshop.job(("w0",), measurer="tests.fixtures.pretenders:Wrapper")
    round_id = workshop.next_round(job)
    assert workshop.run(round_id) is None
    assert workshop.rows() == []
    assert workshop.state(job) == JobState.FAILED
    assert "does not declare its virtual device" in workshop.explanation(job)
    hosts = {device.host_id for device in workshop.read(lambda session: Devices(session).list())}
    assert "simulated" not in hosts, "no job takes its context from a device that is none"
