"""A finish goes task by task: what it decided is kept, and others have their turn in between."""

import pytest

from mallorn.core.errors import LeaseLost
from mallorn.core.states import JobState, WorkKind
from mallorn.core.values.trial import DecidedTask
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import FinishSteps, WorkItem
from mallorn.db.repositories.tasks import Tasks
from mallorn.workers.host.code_digest import current_builder_name
from mallorn.workers.subprocesses.shutdown import ShutdownRequested
from tests.fixtures.finishing import report
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish

THREE = ("w0", "w1", "w2")


@pytest.fixture
def impatient(monkeypatch):
    """Every turn is long enough, and who waits has waited for long."""
    monkeypatch.setattr("mallorn.workers.process.time_slice.TURN_SEC", 0.0)
    monkeypatch.setattr("mallorn.workers.process.time_slice.WAITED_SEC", -60.0)


def holder(workshop, job):
    return workshop.held(WorkItem(WorkKind.FINISH, job)).holder


def checked(check):
    """The programs whose numbers were checked, in order."""
    return [key for key, _candidate in check.asked]


def test_what_a_finish_decided_before_it_broke_off_is_not_decided_again(workshop, exported, check):
    job = tuned(workshop, THREE)
    verify = check.verify

    def stop_at_the_last(program, slot):
        if program.key == "w2":
            raise ShutdownRequested
        return verify(program, slot)

    check.verify = stop_at_the_last
    finish(workshop, job)
    assert (workshop.state(job), checked(check)) == (JobState.FINISHING, ["w0", "w1"])
    ran = dict(workshop.bench.executions)
    check.verify = verify
    finish(workshop, job)
    assert (workshop.state(job), checked(check)) == (JobState.DONE, list(THREE))
    again = {key for key, count in workshop.bench.executions.items() if count > ran.get(key, 0)}
    assert {program for program, _candidate in again} == {"w2"}
    assert len(report(workshop, job)["tasks_us"]) == 3
    assert len(exported) == 3


def test_a_finish_lets_others_have_their_turn_between_two_tasks(workshop, exported, check, impatient):
    first, second = tuned(workshop, THREE), workshop.job(("w3",), trials=16)
    waiting = workshop.next_round(second)
    finish(workshop, first)
    assert (workshop.state(first), holder(workshop, first)) == (JobState.FINISHING, None)
    assert workshop.explanation(first) == "other jobs have their turn"
    step = workshop.read(lambda session: Jobs(session).get(first, None).step)
    assert (step.done, step.total) == (1, 3)
    workshop.run(waiting)
    workshop.work(second)
    finish(workshop, first)
    assert workshop.state(first) == JobState.FINISHING, "the other's finish waits now"
    finish(workshop, second)
    assert workshop.state(second) == JobState.DONE
    finish(workshop, first)
    assert workshop.state(first) == JobState.DONE
    assert sorted(checked(check)) == ["w0", "w1", "w2", "w3"]


def test_a_finish_that_nobody_waits_for_goes_on(workshop, exported, impatient):
    job = tuned(workshop, THREE)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE


def test_a_short_turn_is_not_given_away(workshop, exported, monkeypatch):
    monkeypatch.setattr("mallorn.workers.process.time_slice.WAITED_SEC", -60.0)
    first, second = tuned(workshop, THREE), workshop.job(("w3",), trials=16)
    workshop.next_round(second)
    finish(workshop, first)
    assert workshop.state(first) == JobState.DONE


def test_a_task_that_nothing_solves_is_not_tried_again_either(workshop, exported, check, impatient):
    job, other = tuned(workshop, ("w0", "w1")), workshop.job(("w3",), trials=16)
    check.wrong.add("all")
    workshop.next_round(other)
    finish(workshop, job)
    lost = list(check.asked)
    assert {key for key, _candidate in lost} == {"w0"}
    check.wrong.clear()
    finish(workshop, job)
    assert {key for key, _candidate in check.asked[len(lost) :]} == {"w1"}
    assert report(workshop, job)["tasks_without_winner"] == ["w0"]


def test_what_other_code_decided_is_decided_again(workshop, exported, check, impatient):
    job, other = tuned(workshop, THREE), workshop.job(("w3",), trials=16)
    workshop.next_round(other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mallorn.workers.finish.order_candidates._code_of", lambda _stage: "before the upgrade")
        finish(workshop, job)
    assert (workshop.state(job), checked(check)) == (JobState.FINISHING, ["w0"])
    for _turn in THREE:
        finish(workshop, job)
    assert (workshop.state(job), checked(check)) == (JobState.DONE, ["w0", *THREE])


def test_a_job_that_other_code_imported_is_imported_again_before_anything_is_decided(
    workshop, exported, check
):
    job = tuned(workshop, THREE)
    ran = len(workshop.bench.ran)
    graph = workshop.read(lambda session: Jobs(session).get(job, None).graph)
    for code in ("of before the upgrade", ""):
        old = graph.model_copy(update={"code": code})
        workshop.write(lambda session, old=old: Jobs(session).store_report_columns(job, graph=old))
        finish(workshop, job)
        assert workshop.state(job) == JobState.QUEUED
        assert "imported again" in workshop.explanation(job)
        workshop.write(
            lambda session: Jobs(session).move_to_state(job, [JobState.QUEUED], JobState.FINISHING)
        )
    assert (check.asked, exported, len(workshop.bench.ran)) == ([], [], ran)
    workshop.write(lambda session: Jobs(session).store_report_columns(job, graph=graph))
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE


def test_after_more_trials_every_task_is_decided_anew(workshop, exported, check, impatient):
    job, other = tuned(workshop, THREE), workshop.job(("w3",), trials=16)
    workshop.next_round(other)
    finish(workshop, job)
    workshop.write(lambda session: Jobs(session).pause(job, "ada"))
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.PAUSED], JobState.TUNING))
    workshop.write(lambda session: Jobs(session).store_report_columns(job, trials=48))
    workshop.work(job)
    workshop.work(other)
    for _turn in range(len(THREE) + 2):
        finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert checked(check).count("w0") == 2


def test_a_paused_finish_keeps_what_it_decided(workshop, exported, check, impatient):
    job, other = tuned(workshop, THREE), workshop.job(("w3",), trials=16)
    waiting = workshop.next_round(other)
    finish(workshop, job)
    workshop.write(lambda session: Jobs(session).pause(job, "ada"))
    workshop.write(lambda session: Jobs(session).resume(job, "ada"))
    workshop.run(waiting)
    finish(workshop, job)
    assert (workshop.state(job), checked(check).count("w0")) == (JobState.DONE, 1)


def test_an_old_attempt_keeps_nothing(workshop):
    job = workshop.job(("w0",))
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.TUNING], JobState.FINISHING))
    old = workshop.write(lambda session: Jobs(session).claim_stage(job, JobState.FINISHING, "w", -1.0))
    new = workshop.write(lambda session: Jobs(session).claim_stage(job, JobState.FINISHING, "w", 60.0))
    task = workshop.read(lambda session: Tasks(session).list(job))[0].id
    step = DecidedTask(candidates=())
    with pytest.raises(LeaseLost):
        workshop.write(lambda session: FinishSteps(session).store(old, task, 0, step))
    workshop.write(lambda session: FinishSteps(session).store(new, task, 0, step))
    assert workshop.read(lambda session: FinishSteps(session).read_decisions(job, 0, "")) == {task: step}
    assert workshop.read(lambda session: FinishSteps(session).read_decisions(job, 8, "")) == {}


def test_nothing_is_kept_of_a_job_that_is_done(workshop, exported):
    job = tuned(workshop, THREE)
    finish(workshop, job)
    spent = report(workshop, job)["trials"]
    assert (
        workshop.read(lambda session: FinishSteps(session).read_decisions(job, spent, current_builder_name()))
        == {}
    )
