"""A workload that several jobs want is tuned once and pays into all of them."""

import pytest
from sqlalchemy import update

from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.job_progress import progress
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.tasks import TaskHistories
from mallorn.db.tables import Round
from mallorn.services.control.plan_job import job_view


def view(yard, job_id):
    def read(session):
        row = FairShares(session).job_to_plan(job_id)
        return job_view(row, JobOptions.model_validate(row.job.options), TaskHistories(session).of(row.job))

    return yard.write(read)


def task(yard, job_id, index=0):
    return view(yard, job_id).tasks[index]


def spent(yard, job_id):
    return yard.read(lambda session: progress(session, Jobs(session).get(job_id, None)))


@pytest.fixture
def pair(yard):
    """Two jobs of two owners that share w0; the first has measured it once and every round is closed."""
    first = yard.job("w0", "mine")
    for round_id in yard.opened(first):
        yard.close(round_id, 20.0)
    yard.write(lambda session: Jobs(session).pause(first, "ada"))
    second = yard.job("w0", "yours", owner="bob")
    return first, second


def test_a_job_does_not_visit_what_another_has_explored(yard, pair):
    _, second = pair
    rounds = [yard.workshop.round(round_id) for round_id in yard.opened(second)]
    unexplored = view(yard, second).tasks[1].id
    assert rounds[0].task_id == unexplored
    assert rounds[0].reason.policy == "first-pass"
    assert [row.reason.policy for row in rounds[1:] if row.task_id != unexplored] != ["first-pass"]


def test_both_see_the_points_and_the_best_of_whoever_measured(yard, pair):
    first, second = pair
    yard.plan(second)
    mine, theirs = task(yard, first), task(yard, second)
    assert theirs.points == mine.points
    assert theirs.best_us == mine.best_us == 20.0
    assert (mine.rounds, theirs.rounds) == (1, 0)


def test_trials_are_charged_to_the_job_that_ran_them(yard, pair):
    first, second = pair
    opened = yard.opened(second)
    assert task(yard, second).trials == 0
    assert spent(yard, second).spent == 0
    for round_id in opened:
        yard.close(round_id, 15.0)
    before = task(yard, first).trials
    assert task(yard, second).trials > 0
    assert task(yard, first).trials == before
    assert task(yard, first).best_us == 15.0


def test_points_follow_each_other_as_rounds_closed_and_their_trials_add_up(yard, pair):
    first, second = pair
    yard.write(lambda session: Jobs(session).pause(second, "bob"))
    third = yard.job("w0")
    for latency_us in (18.0, 19.0):
        for round_id in yard.opened(third):
            yard.close(round_id, latency_us)
    points = task(yard, first).points
    assert [point.best_us for point in points] == [20.0, 18.0, 18.0, 19.0, 19.0]
    assert [point.trials for point in points] == sorted({point.trials for point in points})
    assert points == task(yard, third).points


def test_time_per_trial_is_known_from_the_rounds_of_others(yard, pair):
    first, second = pair
    slow = update(Round).where(Round.job_id == first).values(started_at=Round.finished_at - 2.0 * Round.size)
    yard.write(lambda session: session.execute(slow))
    yard.plan(second)
    assert task(yard, second).seconds_per_trial == pytest.approx(2.0)
    assert task(yard, second, 1).seconds_per_trial is None
    assert view(yard, second).seconds_per_trial == pytest.approx(2.0)


def test_a_round_is_cut_to_the_time_that_is_left(yard, pair):
    first, _ = pair
    slow = update(Round).where(Round.job_id == first).values(started_at=Round.finished_at - 60.0 * Round.size)
    yard.write(lambda session: session.execute(slow))
    hurried = yard.job("w0", minutes=5.0)
    sizes = [row.size for row in map(yard.workshop.round, yard.opened(hurried)) if row.job_id == hurried]
    assert sizes
    assert sum(sizes) <= 5


def test_times_of_another_measuring_context_are_no_points(yard, pair):
    _, second = pair
    yard.write(lambda session: yard_context(session, second))
    assert task(yard, second).points == ()


def yard_context(session, job_id):
    """Bind the job to a context in which nobody has measured."""
    from mallorn.db.repositories.measuring_contexts import Contexts

    target_id = Jobs(session).get(job_id, None).target_id
    Jobs(session).bind_context(job_id, Contexts(session).ensure(target_id, "another", "0.27.0", 8, {}).id)


def test_a_job_that_was_resumed_sees_what_others_found_meanwhile(yard, pair):
    first, second = pair
    for round_id in yard.opened(second):
        yard.close(round_id, 5.0)
    yard.write(lambda session: Jobs(session).resume(first, "ada"))
    assert yard.workshop.state(first) == JobState.TUNING
    assert task(yard, first).best_us == 5.0
    assert len(task(yard, first).points) >= 2
