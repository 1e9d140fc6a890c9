"""A time that others disturbed is a bound: it wins nothing, teaches nobody, and may be taken again."""

import pytest
from sqlalchemy import select, update

from mallorn.core.states import RoundState
from mallorn.core.values.decision_log import RoundStats
from mallorn.db.repositories.decision_log import DecisionLog
from mallorn.db.repositories.job_progress import progress_of
from mallorn.db.repositories.measurements import Measurements, Records
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.withdraw_measurements import BusyHours
from mallorn.db.tables import Job, Measurement

A_DAY_SEC = 86_400.0


def trials(rows, method, *args):
    task = rows.workloads["w0"], rows.target_id
    return rows.read(lambda session: getattr(Trials(session), method)(*task, *args))


def test_a_bound_is_stored_beside_its_times_and_not_as_a_latency(rows):
    rows.closed_round(rows.ok(0, 5.0, disturbed=0.4), rows.ok(1, 7.0, disturbed=0.001), rows.ok(2, 9.0))
    page = rows.read(lambda session: Records(session).page(None))
    told = [(record.latency_us, record.bound_us, record.disturbed, record.run_us) for record in page.items]
    assert told == [
        (9.0, None, None, [9.0]),
        (7.0, None, 0.001, [7.0]),
        (None, 5.0, 0.4, [5.0]),
    ]


def test_it_wins_nothing(rows):
    round_id = rows.closed_round(rows.ok(0, 5.0, disturbed=0.4), rows.ok(1, 7.0))
    assert [trial.latency_us for trial in trials(rows, "best", 4)] == [7.0]
    of_round = rows.read(lambda session: Trials(session).of_round(round_id))
    assert [trial.latency_us for trial, _ in of_round] == [None, 7.0]
    (decision,) = rows.read(lambda session: DecisionLog(session).list(rows.job_id)).items
    assert (decision.best_us, decision.failures, decision.trials) == (7.0, 0, 2)


def test_where_nothing_else_is_known_the_lowest_bound_is_the_best_guess(rows):
    rows.closed_round(rows.ok(0, 5.0, disturbed=0.4), rows.ok(1, 4.0, disturbed=0.9))
    assert [trial.latency_us for trial in trials(rows, "best", 4)] == [4.0, 5.0]


def test_nobody_learns_from_it_and_it_may_be_measured_again(rows):
    rows.closed_round(rows.ok(0, 5.0, disturbed=0.4), rows.ok(1, 7.0))
    assert [trial.candidate.decisions for trial in trials(rows, "history")] == [(1, 2)]
    workload = rows.workloads["w0"]
    known = rows.read(lambda session: Trials(session).count_learnable_by_workload([workload], rows.target_id))
    assert known == {workload: 1}


def test_a_time_may_turn_out_to_be_a_bound(rows):
    round_id = rows.closed_round(rows.ok(0, 5.0), rows.ok(1, 7.0))
    rows.write(lambda session: Measurements(session).mark_disturbed_slots(round_id, {0: 0.3}))
    assert [trial.latency_us for trial in trials(rows, "best", 4)] == [7.0]


def best_us(rows):
    """What a user sees of the task, and of the job."""
    (summary, *_) = rows.read(lambda session: Tasks(session).summaries(rows.job_id))
    (job,) = rows.read(lambda session: progress_of(session, [session.get(Job, rows.job_id)])).values()
    assert list(job.best_us.values()) == ([] if summary.best_us is None else [summary.best_us])
    return summary.best_us


def test_the_best_value_that_a_user_sees_never_rises_again(rows):
    rows.closed_round(rows.ok(0, 233.8))
    assert best_us(rows) == 233.8
    round_id, hold = rows.claimed_round()
    rows.write(lambda session: Measurements(session).add_trials(hold, [rows.ok(1, 224.8)]))
    assert best_us(rows) == 233.8, "a time of a round that goes on may still turn out to be a bound"
    rows.write(lambda session: Measurements(session).mark_disturbed_slots(round_id, {1: 0.3}))
    rows.write(lambda session: Measurements(session).add_trials(hold, [rows.ok(2, 230.1)]))
    rows.write(lambda session: Rounds(session).close(hold, RoundState.DONE, RoundStats(candidates=2)))
    assert best_us(rows) == 230.1


def stored_before(rows, day, *latencies_us):
    """Times of the same candidates, on a day when timings did not tell what disturbed them."""
    round_id = rows.closed_round(*(rows.ok(slot, us) for slot, us in enumerate(latencies_us)))
    when = update(Measurement).where(Measurement.round_id == round_id)
    rows.write(lambda session: session.execute(when.values(created_at=day * A_DAY_SEC)))


def busy_hours(rows):
    return rows.read(lambda session: BusyHours(session).busy_hours())


def test_hours_whose_times_disagree_with_later_ones_are_found_and_marked(rows):
    stored_before(rows, 1, 25.0, 50.0, 24.0, 99.0)
    stored_before(rows, 2, 10.0, 20.0, 10.0)
    (hour,) = busy_hours(rows)
    assert (hour.job_id, hour.rows, hour.times) == (rows.job_id, 4, pytest.approx(2.5))
    assert rows.write(lambda session: BusyHours(session).mark_as_bounds(hour)) == 4
    assert busy_hours(rows) == []
    left = rows.read(lambda session: session.scalars(select(Measurement.latency_us)).all())
    assert sorted(us for us in left if us is not None) == [10.0, 10.0, 20.0]


@pytest.mark.parametrize("again", [(10.4, 20.9, 9.7), (10.0, 20.0, 30.0)])
def test_noise_and_one_odd_time_are_no_busy_hour(rows, again):
    stored_before(rows, 1, 10.0, 20.0, 10.0)
    stored_before(rows, 2, *again)
    assert busy_hours(rows) == []


def test_times_of_which_is_known_what_disturbed_them_are_not_doubted(rows):
    rows.closed_round(*(rows.ok(slot, 30.0, disturbed=0.0) for slot in range(4)))
    rows.closed_round(*(rows.ok(slot, 10.0, disturbed=0.0) for slot in range(4)))
    assert busy_hours(rows) == []
