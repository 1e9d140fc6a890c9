"""Planning, sweeping and reaping against real rows."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import update

from mallorn.core import queues
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, RoundState
from mallorn.core.targets import NATIVE
from mallorn.core.values.event import FinishingEvent, RoundPlannedEvent
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.job_progress import progress
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import MAX_DEATHS, Leases, WorkItem
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.tables import Device, Job
from mallorn.services.control import plan_job as turn
from mallorn.services.control import plan_target as planning
from mallorn.services.control.periodic_tasks import collect_jobs_to_plan, requeue_expired_leases
from mallorn.services.control.plan_target import plan_target, survey
from tests.fixtures.database import BOTH

WAKE = (queues.WORK, NATIVE)


def kinds(workshop, job):
    return [event.kind for event in workshop.read(lambda session: Events(session).after(job, 0, 1000))]


def lose_lease(workshop, round_id):
    workshop.write(lambda session: Rounds(session).claim(round_id, "w", -1))
    return requeue_expired_leases(workshop.database)


def spent(workshop, job):
    return workshop.read(lambda session: progress(session, Jobs(session).get(job, None)))


def retired(workshop, job):
    return [task.retired for task in workshop.read(lambda session: Tasks(session).list(job))]


def test_without_a_device_a_job_says_what_it_waits_for_and_goes_on_when_one_comes(workshop):
    job = workshop.job()
    workshop.write(lambda session: session.execute(update(Device).values(last_seen=0)))
    assert workshop.plan(job) == []
    assert "mallorn device" in workshop.explanation(job)
    workshop.see_device()
    assert workshop.plan(job) != []
    assert workshop.explanation(job) == ""


def test_one_planner_at_a_time(workshop):
    job = workshop.job()
    turn = WorkItem.for_planning(workshop.target_id)
    hold = workshop.write(lambda session: Leases(session).claim(turn, "other", 60))
    assert plan_target(workshop.database, job, "me") is None
    workshop.write(lambda session: Leases(session).end(hold))
    assert plan_target(workshop.database, job, "me")


def test_a_planner_that_died_holds_nobody_up_for_long(workshop):
    job = workshop.job()
    turn = WorkItem.for_planning(workshop.target_id)
    workshop.write(lambda session: Leases(session).claim(turn, "dead", -1))
    assert plan_target(workshop.database, job, "me")


def slow(decide):
    """A planner that thinks for a while: whoever may read the state meanwhile does."""

    def decide_late(view):
        time.sleep(0.1)
        return decide(view)

    return decide_late


@BOTH
def test_planners_that_race_never_spend_more_than_the_budget(workshop, monkeypatch):
    monkeypatch.setattr(planning, "PLAN_LEASE_SEC", -1.0)  # a lease that keeps nobody out
    job = workshop.job([f"w{i}" for i in range(9)], trials=24)
    workshop.plan(job)  # the first plan also writes what is settled once
    monkeypatch.setattr(planning, "survey", lambda *target: replace(survey(*target), max_new_rounds=8))
    monkeypatch.setattr(turn, "plan_rounds", slow(turn.plan_rounds))
    start = threading.Barrier(4)

    def race(holder):
        start.wait()
        return plan_target(workshop.database, job, str(holder))

    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(race, range(4)))
    assert spent(workshop, job).open_candidates == 24
    assert sum(name == queues.WORK for plan in plans for name, *_ in plan or []) == 4


def test_every_tuning_job_is_looked_at_by_the_sweeper(workshop):
    jobs = [workshop.job(("w0",)), workshop.job(("w1",))]
    workshop.write(lambda session: Jobs(session).pause(jobs[0], "ada"))
    assert collect_jobs_to_plan(workshop.database) == [(queues.PLAN, jobs[1])]


def test_a_dead_workers_round_returns_and_its_job_hears_of_it(workshop):
    job = workshop.job()
    round_id = workshop.next_round(job)
    assert lose_lease(workshop, round_id) == []
    assert kinds(workshop, job)[-1] == "round_returned"
    assert workshop.run(round_id) is not None


def test_the_last_death_poisons_a_round_and_the_job_is_planned_anew(workshop):
    job = workshop.job()
    round_id = workshop.next_round(job)
    for _ in range(MAX_DEATHS - 1):
        assert lose_lease(workshop, round_id) == []
    assert lose_lease(workshop, round_id) == [(queues.PLAN, job)]
    assert kinds(workshop, job)[-1] == "round_poisoned"


def test_a_job_whose_every_round_is_poison_ends_all_the_same(workshop):
    job = workshop.job(("w0",))
    for _ in range(3):
        round_id = workshop.next_round(job)
        for _ in range(MAX_DEATHS):
            lose_lease(workshop, round_id)
    assert workshop.plan(job) == [WAKE]
    assert workshop.state(job) == JobState.FINISHING
    assert "3 rounds were given up: they lost every worker" in retired(workshop, job)[0]


def test_a_task_that_is_known_to_be_good_is_given_up_too_when_it_kills_workers(workshop):
    workshop.work(workshop.job(("w0",), trials=8))
    job = workshop.job(("w0",), trials=16)
    for _ in range(3):
        round_id = workshop.next_round(job)
        for _ in range(MAX_DEATHS):
            lose_lease(workshop, round_id)
    assert workshop.plan(job) == [WAKE]
    assert workshop.state(job) == JobState.FINISHING


def test_a_task_whose_every_candidate_fails_is_retired(workshop):
    workshop.bench.outcomes = dict.fromkeys(range(64), Outcome.RUN_ERROR)
    job = workshop.job(("w0",), trials=1000)
    workshop.work(job)
    assert workshop.state(job) == JobState.FINISHING
    assert "no valid result" in retired(workshop, job)[0]
    assert spent(workshop, job).spent < 100


def test_a_space_that_is_exhausted_ends_the_job(workshop):
    workshop.use_space(2, 2, 1)
    job = workshop.job(("w0",), trials=1000, policy="round-robin", round_size=64)
    workshop.work(job)
    assert workshop.state(job) == JobState.FINISHING
    assert "the space has no untried candidates" in retired(workshop, job)[0]


def test_a_model_without_tasks_goes_straight_to_its_finish(workshop):
    job = workshop.job(())
    assert workshop.plan(job) == [WAKE]
    assert workshop.state(job) == JobState.FINISHING


def test_no_task_gets_more_than_its_own_budget(workshop):
    job = workshop.job(("w0", "w1"), trials=1000, task_trials=12)
    workshop.work(job)
    assert workshop.state(job) == JobState.FINISHING
    assert [task.trials for task in workshop.read(lambda session: Tasks(session).summaries(job))] == [12, 12]


@BOTH
def test_a_task_that_costs_nothing_is_tuned_like_any_other(workshop):
    job = workshop.job(("w0",), trials=8, flops=0.0)
    workshop.work(job)
    assert spent(workshop, job).spent == 8


def test_when_the_time_is_over_rounds_that_nobody_began_are_not_waited_for(workshop):
    job = workshop.job(minutes=60)
    queued = workshop.next_round(job)
    workshop.write(lambda session: session.execute(update(Job).values(created_at=Job.created_at - 7200)))
    workshop.plan(job)
    assert workshop.state(job) == JobState.FINISHING
    assert workshop.round(queued).state == RoundState.CANCELLED
    ended = workshop.read(lambda session: Events(session).newest(job, FinishingEvent))
    assert "time budget" in ended.reason


def test_a_round_that_runs_when_the_time_is_over_is_waited_for(workshop):
    job = workshop.job(("w0",), minutes=60)
    running = workshop.next_round(job)
    workshop.write(lambda session: Rounds(session).claim(running, "w", 60))
    workshop.write(lambda session: session.execute(update(Job).values(created_at=Job.created_at - 7200)))
    assert workshop.plan(job) == []
    assert workshop.state(job) == JobState.TUNING


def test_trials_asked_for_after_the_export_have_no_deadline(workshop):
    job = workshop.job(("w0",), trials=8, minutes=60)
    workshop.work(job)
    workshop.write(lambda session: Jobs(session).store_report_columns(job, export_uri="somewhere"))
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.FINISHING], JobState.DONE))
    workshop.write(lambda session: session.execute(update(Job).values(created_at=Job.created_at - 7200)))
    workshop.write(lambda session: Jobs(session).resume(job, "ada", 8))
    workshop.work(job)
    assert spent(workshop, job).spent == 16


def test_trials_after_a_bench_that_failed_are_followed_by_a_whole_finish(workshop):
    job = workshop.job(("w0",), trials=8)
    workshop.work(job)
    workshop.write(lambda session: Jobs(session).store_report_columns(job, is_bench=True))
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.FINISHING], JobState.FAILED))
    workshop.write(lambda session: Jobs(session).resume(job, "ada", 8))
    workshop.work(job)
    assert workshop.state(job) == JobState.FINISHING
    assert not workshop.read(lambda session: Jobs(session).get(job, None).is_bench)


def test_a_job_without_a_budget_ends_by_itself_and_keeps_what_it_expected(workshop):
    job = workshop.job(("w0",), trials=None)
    workshop.work(job)
    assert spent(workshop, job).spent > 16
    assert workshop.state(job) == JobState.FINISHING
    ended = workshop.read(lambda session: Events(session).newest(job, FinishingEvent))
    assert ended.outlook.current_us > 0
    assert ended.outlook.trials == 0
    assert ended.reason.endswith(ended.outlook.limit_and_gain_text), (
        "also where the most trials a task were spent"
    )
    planned = workshop.read(lambda session: Events(session).newest(job, RoundPlannedEvent))
    assert planned.outlook.expected_us <= planned.outlook.current_us


@BOTH
@pytest.mark.parametrize(("measured", "limit_us"), [(True, 3 * 1e5 / 100 / 1e3), (False, None)])
def test_a_job_whose_machine_was_measured_knows_its_limit(workshop, measured, limit_us):
    job = workshop.job(("w0", "w1"), trials=64, flops=1e5)
    machine = assume_typical_cpu(2, 16).model_copy(
        update={"gflops": {}, "core_gflops": 50.0, "measured": measured}
    )
    workshop.write(lambda session: Jobs(session).bind_machine(job, machine))
    workshop.work(job)
    ended = workshop.read(lambda session: Events(session).newest(job, FinishingEvent))
    assert ended.outlook.limit_us == pytest.approx(limit_us)


def test_a_paused_job_keeps_nobody_from_its_workload(workshop):
    paused, other = workshop.job(("w0",)), workshop.job(("w0",))
    queued = workshop.next_round(paused)
    assert workshop.plan(other) == []
    workshop.write(lambda session: Jobs(session).pause(paused, "ada"))
    collect_jobs_to_plan(workshop.database)
    assert workshop.round(queued).state == RoundState.CANCELLED
    assert workshop.plan(other) != []


@BOTH
def test_a_resumed_job_waits_while_another_measures_its_workload_and_then_goes_on(workshop):
    done = workshop.job(("w0",), trials=8)
    workshop.work(done)
    workshop.write(lambda session: Jobs(session).move_to_state(done, [JobState.FINISHING], JobState.DONE))
    holder = workshop.next_round(workshop.job(("w0",)))
    workshop.write(lambda session: Jobs(session).resume(done, "ada", 8))
    assert workshop.plan(done) == []
    assert workshop.state(done) == JobState.TUNING
    workshop.run(holder)
    workshop.work(done)
    assert spent(workshop, done).spent == 16


@pytest.mark.parametrize("stage", [JobState.IMPORTING, JobState.FINISHING])
def test_the_last_worker_lost_in_a_stage_fails_the_job_and_says_so(workshop, stage):
    job = workshop.job()
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.TUNING], stage))
    for _ in range(MAX_DEATHS):
        assert workshop.state(job) == stage
        workshop.write(lambda session: Jobs(session).claim_stage(job, stage, "w", -1))
        requeue_expired_leases(workshop.database)
    assert workshop.state(job) == JobState.FAILED
    assert kinds(workshop, job)[-1] == "failed"
    assert collect_jobs_to_plan(workshop.database) == []


def test_a_job_may_ask_for_some_of_its_tasks_only(workshop):
    job = workshop.job(only=["*1"])
    workshop.plan(job)
    left_out, wanted = retired(workshop, job)
    assert left_out == "the job asks for other tasks only"
    assert wanted == ""
