"""One worker at a time imports or finishes a job; one that breaks off three times or loses ten fails."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import select

from mallorn.core.errors import MallornError
from mallorn.core.states import JobState
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import MAX_DEATHS, MAX_LOSSES, Leases
from mallorn.db.tables import LeaseRow
from mallorn.workers.subprocesses.shutdown import ShutdownRequested

FINISHING = JobState.FINISHING


@pytest.fixture
def stage(rows):
    """A job in its finish, and calls about it in transactions of their own."""

    class Calls:
        job_id = rows.job_id

        def __getattr__(self, name):
            return lambda *args, **kw: rows.write(lambda session: getattr(Jobs(session), name)(*args, **kw))

        def claim(self, lease_sec=60.0, state=FINISHING):
            """The claim on a stage, or None."""
            return self.claim_stage(rows.job_id, state, "w", lease_sec)

        def renew(self, hold):
            return rows.write(lambda session: Leases(session).renew(hold, 60))

        def give_back(self, hold):
            return rows.write(lambda session: WorkItems(session).return_work(hold, ShutdownRequested()))

        def lose(self, hold, words):
            return rows.write(
                lambda session: WorkItems(session).record_interruption(hold, MallornError(words))
            )

        def die(self, hold, words):
            rows.write(
                lambda session: WorkItems(session).record_interruption(
                    hold, MallornError(words), MAX_DEATHS, is_death=True
                )
            )

        def expire(self):
            """For each job whose stage was taken back: whether it failed."""
            return [
                each.is_given_up
                for each in rows.write(lambda session: WorkItems(session).end_expired_leases(self.job_id))
            ]

        def waiting(self):
            """The jobs whose stages a worker may claim now."""
            is_due = LeaseRow.until.is_(None), LeaseRow.due_at <= time.time() + 1
            return rows.read(lambda session: session.scalars(select(LeaseRow.subject).where(*is_due)).all())

        def job(self):
            return self.get(rows.job_id, None)

    calls = Calls()
    calls.move_to_state(rows.job_id, [JobState.TUNING], FINISHING)
    return calls


def test_of_many_claimers_exactly_one_gets_the_stage(stage):
    with ThreadPoolExecutor(4) as pool:
        holds = list(pool.map(lambda _: stage.claim(), range(4)))
    assert len(list(filter(None, holds))) == 1


def test_a_stage_the_job_is_not_in_is_not_to_be_had(stage):
    assert stage.claim(state=JobState.IMPORTING) is None


def test_a_stage_whose_lease_ran_out_goes_to_the_next_and_the_first_learns_it(stage):
    first = stage.claim(lease_sec=-1)
    second = stage.claim()
    assert second.attempt == first.attempt + 1
    assert not stage.renew(first)
    assert stage.renew(second)


@pytest.mark.parametrize("end", ["pause", "cancel"])
def test_renewing_fails_once_the_job_was_stopped(stage, rows, end):
    stage.move_to_state(stage.job_id, [FINISHING], JobState.IMPORTING)
    hold = stage.claim(state=JobState.IMPORTING)
    getattr(stage, end)(stage.job_id, "ada")
    assert not stage.renew(hold)


def test_an_old_worker_cannot_end_the_stage_of_a_new_one(stage):
    old = stage.claim(lease_sec=-1)
    new = stage.claim()
    assert not stage.move_to_state(stage.job_id, [FINISHING], JobState.DONE, hold=old)
    assert stage.move_to_state(stage.job_id, [FINISHING], JobState.DONE, hold=new)


def test_who_held_a_stage_before_the_job_was_put_back_into_it_holds_it_no_more(stage):
    stage.move_to_state(stage.job_id, [FINISHING], JobState.IMPORTING)
    first = stage.claim(state=JobState.IMPORTING)
    stage.pause(stage.job_id, "ada")
    stage.resume(stage.job_id, "ada")
    assert not stage.renew(first)
    second = stage.claim(state=JobState.IMPORTING)
    assert second.attempt == first.attempt + 1
    assert not stage.move_to_state(stage.job_id, [JobState.IMPORTING], JobState.TUNING, hold=first)


def test_a_claim_on_one_stage_is_none_on_another(stage):
    finish = stage.claim()
    stage.move_to_state(stage.job_id, [FINISHING], JobState.IMPORTING, hold=finish)
    assert stage.claim(state=JobState.IMPORTING)
    assert not stage.move_to_state(stage.job_id, [JobState.IMPORTING], JobState.TUNING, hold=finish)


def test_a_stage_that_was_given_back_can_be_claimed_at_once(stage):
    hold = stage.claim()
    assert stage.give_back(hold)
    assert stage.claim().attempt == hold.attempt + 1
    assert not stage.give_back(hold)


def test_the_last_worker_that_dies_fails_the_job(stage):
    for _ in range(MAX_DEATHS - 1):
        stage.claim(lease_sec=-1)
        assert stage.expire() == [False]
    stage.claim(lease_sec=-1)
    assert stage.expire() == [True]
    assert (stage.job().state, stage.job().finished_at is None) == (JobState.FAILED, False)
    assert stage.job().ended_because == f"the worker died or stopped responding {MAX_DEATHS} times"


def test_a_dead_worker_counts_whether_a_reaper_or_its_successor_noticed_first(stage):
    for _ in range(MAX_DEATHS):
        stage.claim(lease_sec=-1)
    assert stage.expire() == [True]


def test_deaths_of_workers_and_of_helpers_from_outside_count_together(stage):
    for _ in range(MAX_DEATHS // 2):
        stage.claim(lease_sec=-1)
        assert stage.expire() == [False]
    for _ in range(MAX_DEATHS - MAX_DEATHS // 2):
        assert stage.job().state == FINISHING
        stage.die(stage.claim(), "graphs died of SIGKILL")
    reason = f"finishing was interrupted {MAX_DEATHS} times: graphs died of SIGKILL"
    assert (stage.job().state, stage.job().ended_because) == (JobState.FAILED, reason)


def test_deaths_from_outside_are_not_held_against_what_broke_off(stage):
    for _ in range(MAX_LOSSES):
        stage.claim(lease_sec=-1)
        assert stage.expire() == [False]
    for _ in range(MAX_LOSSES - 1):
        assert not stage.lose(stage.claim(), "it died").is_given_up
    assert stage.job().state == FINISHING
    assert stage.lose(stage.claim(), "it died").is_given_up


def test_a_kill_that_an_old_holder_tells_of_counts_for_nothing(stage):
    hold = stage.claim()
    stage.die(replace(hold, attempt=hold.attempt - 1), "not mine")
    assert stage.renew(hold)


def test_a_stage_that_broke_off_is_lost_by_its_holder_alone_and_waits_for_another_at_once(stage):
    hold = stage.claim()
    assert stage.lose(replace(hold, attempt=hold.attempt + 1), "not mine") is None
    assert not stage.lose(hold, "it died").is_given_up
    assert stage.waiting() == [stage.job_id]
    for _ in range(2):
        lost = stage.lose(stage.claim(), "it died again")
    assert lost.is_given_up
    reason = "finishing was interrupted 3 times: it died again"
    assert (stage.job().state, stage.job().ended_because) == (JobState.FAILED, reason)


def test_deaths_in_one_stage_do_not_count_in_the_next(stage):
    for state in (JobState.IMPORTING, FINISHING):
        for _ in range(MAX_DEATHS - 1):
            stage.claim(lease_sec=-1)
            stage.claim(lease_sec=-1, state=JobState.IMPORTING)
            assert stage.expire() == [False]
        stage.move_to_state(stage.job_id, [JobState.IMPORTING, FINISHING], state)
    assert stage.job().state == FINISHING


def test_a_held_stage_may_not_be_claimed(stage):
    stage.claim()
    assert stage.waiting() == []
    stage.move_to_state(stage.job_id, [FINISHING], FINISHING)
    assert stage.waiting() == [stage.job_id]


@pytest.mark.parametrize("end", ["pause", "cancel"])
def test_who_is_stopped_waits_for_nobody_and_who_goes_on_does(stage, end):
    stage.move_to_state(stage.job_id, [FINISHING], JobState.QUEUED)
    getattr(stage, end)(stage.job_id, "ada")
    assert stage.waiting() == []
    if end == "pause":
        stage.resume(stage.job_id, "ada")
        assert stage.waiting() == [stage.job_id]
