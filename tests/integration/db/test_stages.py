"""One worker at a time imports or finishes a job; three that die in a row fail it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import update

from db.repositories.jobs import Jobs
from db.tables import Job
from mallorn.core.states import JobState

FINISHING = JobState.FINISHING


@pytest.fixture
def stage(rows):
    """A job in its finish, and calls of Jobs about it in transactions of their own."""

    class Calls:
        job_id = rows.job_id

        def __getattr__(self, name):
            return lambda *args, **kw: rows.write(lambda session: getattr(Jobs(session), name)(*args, **kw))

        def claim(self, lease_sec=60.0, state=FINISHING):
            return self.claim_stage(rows.job_id, state, "w", lease_sec)

        def job(self):
            return self.get(rows.job_id, None)

    calls = Calls()
    calls.move(rows.job_id, [JobState.TUNING], FINISHING)
    return calls


def test_of_many_claimers_exactly_one_gets_the_stage(stage):
    with ThreadPoolExecutor(4) as pool:
        tokens = list(pool.map(lambda _: stage.claim(), range(4)))
    assert sorted(filter(None, tokens)) == [1]


def test_a_stage_the_job_is_not_in_is_not_to_be_had(stage):
    assert stage.claim(state=JobState.IMPORTING) is None


def test_a_stage_whose_lease_ran_out_goes_to_the_next_and_the_first_learns_it(stage):
    first = stage.claim(lease_sec=-1)
    second = stage.claim()
    assert second == first + 1
    assert not stage.renew_stage(stage.job_id, first, 60)
    assert stage.renew_stage(stage.job_id, second, 60)


@pytest.mark.parametrize("end", ["pause", "cancel"])
def test_renewing_fails_once_the_job_was_stopped(stage, rows, end):
    stage.move(stage.job_id, [FINISHING], JobState.IMPORTING)
    token = stage.claim(state=JobState.IMPORTING)
    getattr(stage, end)(stage.job_id, "ada")
    assert not stage.renew_stage(stage.job_id, token, 60)


def test_an_old_worker_cannot_end_the_stage_of_a_new_one(stage):
    old = stage.claim(lease_sec=-1)
    new = stage.claim()
    assert not stage.move(stage.job_id, [FINISHING], JobState.DONE, attempt=old)
    assert stage.move(stage.job_id, [FINISHING], JobState.DONE, attempt=new)


def test_tokens_grow_across_stages(stage):
    first = stage.claim()
    stage.move(stage.job_id, [FINISHING], JobState.IMPORTING, attempt=first)
    assert stage.claim(state=JobState.IMPORTING) == first + 1


def test_a_released_stage_can_be_claimed_at_once(stage):
    token = stage.claim()
    assert stage.release_stage(stage.job_id, token)
    assert stage.claim() == token + 1
    assert not stage.release_stage(stage.job_id, token)


def test_the_third_worker_that_dies_fails_the_job(stage):
    for _ in range(2):
        stage.claim(lease_sec=-1)
        assert stage.expire_stages().returned == [stage.job_id]
    stage.claim(lease_sec=-1)
    assert stage.expire_stages().failed == [stage.job_id]
    assert (stage.job().state, stage.job().finished_at is None) == (JobState.FAILED, False)
    assert "3 times in a row" in stage.job().reason


def test_a_stage_that_broke_off_is_lost_by_its_holder_alone_and_sent_again_at_once(stage):
    token = stage.claim()
    assert stage.lose_stage(stage.job_id, token + 1, "not mine").returned == []
    assert stage.lose_stage(stage.job_id, token, "it died").returned == [stage.job_id]
    assert [job.id for job in stage.waiting_stages(30)] == [stage.job_id]
    for _ in range(2):
        lost = stage.lose_stage(stage.job_id, stage.claim(), "it died again")
    assert lost.failed == [stage.job_id]
    assert (stage.job().state, stage.job().reason) == (JobState.FAILED, "it died again")


def test_deaths_in_one_stage_do_not_count_in_the_next(stage):
    for state in (JobState.IMPORTING, FINISHING):
        for _ in range(2):
            stage.claim(lease_sec=-1)
            stage.claim(lease_sec=-1, state=JobState.IMPORTING)
            assert stage.expire_stages().failed == []
        stage.move(stage.job_id, [JobState.IMPORTING, FINISHING], state)
    assert stage.job().state == FINISHING


def test_the_sweeper_finds_stages_that_nobody_holds_once_their_message_is_old(stage, rows):
    assert stage.waiting_stages(30) == []
    rows.write(lambda session: session.execute(update(Job).values(created_at=Job.created_at - 60)))
    assert [job.id for job in stage.waiting_stages(30)] == [stage.job_id]
    stage.mark_sent([stage.job_id])
    assert stage.waiting_stages(30) == []


def test_a_held_stage_needs_no_message(stage):
    stage.claim()
    assert stage.waiting_stages(-60) == []
    stage.move(stage.job_id, [FINISHING], FINISHING)
    assert len(stage.waiting_stages(-60)) == 1
