"""A plan knows from stored curves, totals and unsettled rounds what all rounds would tell it."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pytest
from sqlalchemy import func, select, text, update

from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, RoundState
from mallorn.core.values.learning_curve import MOST_POINTS, WorkloadCurve, WorkloadPoint, WorkloadRound
from mallorn.db.measurement_codec import pack_points, unpack_points
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.job_transitions import ReplacedCode
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.learning_curves import LearningCurves
from mallorn.db.repositories.leases import Leases
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import NewTask, TaskHistories, Tasks
from mallorn.db.repositories.withdraw_measurements import Withdrawals
from mallorn.db.tables import LearningCurve, Measurement, Round, Task
from mallorn.services.control.plan_job import job_view
from tests.fixtures.rows import Rows, new_job
from tests.fixtures.waiting import wait_for
from tests.fixtures.whole_history import whole_view

WORKLOADS = "w0", "w1", "w2"
OWNERS = "ada", "bob", "eve"


def rounded(view):
    """Sums of seconds differ in their last digit with the order of addition."""

    def digits(seconds):
        return None if seconds is None else pytest.approx(seconds, rel=1e-9)

    tasks = tuple(replace(task, seconds_per_trial=digits(task.seconds_per_trial)) for task in view.tasks)
    return replace(view, tasks=tasks, seconds_per_trial=digits(view.seconds_per_trial), seconds_left=None)


class Fleet(Rows):
    """Jobs of several owners, datasets and measuring contexts, with what happens to them by chance."""

    def __init__(self, database, seed):
        self.random = Random(seed)
        self.jobs, self.held, self.seen = [], {}, Counter()
        self.refuted = 0.35 if seed % 2 else 0.0  # the share of failures, with those that find a wrong result
        super().__init__(database, WORKLOADS)

    def _fill(self, session, workloads, owner):
        super()._fill(session, workloads, owner)
        builds = [
            Contexts(session).ensure(self.target_id, "host", "0.27.0", 2, {}, f"b{n}") for n in range(2)
        ]
        self.contexts = [context.id for context in builds]
        self.device_id = Devices(session).record_seen(
            SeenDevice("bench", self.target_id, "host", "host", 2, "0.27.0")
        )
        Jobs(session).bind_context(self.job_id, self.contexts[0])
        self.jobs.append(self.job_id)

    def submit(self, session):
        options = JobOptions(dataset=self.random.choice(["write", "write", "read", "off"]))
        owner, kept = self.random.choice(OWNERS), options.model_dump(mode="json")
        job_id = Jobs(session).create(new_job(owner, target_id=self.target_id, options=kept))[0].id
        chosen = self.random.sample(WORKLOADS, 2)
        known = [self.random.choice([0, 5, 40]) for _ in chosen]
        tasks = [
            NewTask(at, key, 1, self.workloads[key], "matmul", known[at]) for at, key in enumerate(chosen)
        ]
        Tasks(session).add_many(job_id, tasks)
        Jobs(session).move_to_state(job_id, [JobState.QUEUED], JobState.TUNING)
        if self.random.random() < 0.9:
            Jobs(session).bind_context(job_id, self.random.choice(self.contexts))
        self.jobs.append(job_id)

    def open(self, session):
        job = Jobs(session).get(self.random.choice(self.jobs), None)
        task = self.random.choice(Tasks(session).list(job.id))
        name = next(name for name, one in self.workloads.items() if one == task.workload_id)
        busy = Round.workload_id == task.workload_id, Round.state.in_(("queued", "leased"))
        if session.scalar(select(Round.id).where(*busy)) is None:
            self.add_round(session, name, job.id, size=self.random.choice([1, 3, 6]))

    def claim(self, session):
        queued = session.scalars(select(Round.id).where(Round.state == "queued")).all()
        for round_id in sorted(queued):
            self.held[round_id] = Rounds(session).claim(round_id, "w", 60)

    def measure(self, session):
        for round_id, hold in self._leased(session):
            row, slots = Rounds(session).get(round_id), Rounds(session).done_slots(round_id)
            job = Jobs(session).get(row.job_id, None)
            free = [slot for slot in range(row.size) if slot not in slots]
            batch = [self._trial(job, slot) for slot in free[: self.random.randint(0, row.size)]]
            Measurements(session).add_trials(hold, batch)

    def _trial(self, job, slot):
        kind, decisions = self.random.random(), (self.random.randint(0, 12), 2)
        if kind < 0.25 or job.context_id is None:
            return self.failed(slot, Outcome.BUILD_ERROR, context_id=None, decisions=decisions)
        where = {"device_id": self.random.choice([self.device_id, None]), "decisions": decisions}
        where["context_id"] = self.random.choice([job.context_id] * 4 + self.contexts)
        if kind < self.refuted:
            self.seen["refuted"] += 1
            return self.failed(slot, Outcome.WRONG_RESULT, **where)
        return self.ok(slot, self.random.uniform(1.0, 99.0), **where)

    def _leased(self, session):
        leased = session.scalars(select(Round.id).where(Round.state == "leased")).all()
        return [(round_id, self.held[round_id]) for round_id in sorted(leased)]

    def close(self, session):
        if self.random.random() < 0.8:
            self.measure(session)
        for round_id, hold in self._leased(session):
            self.seen["closed"] += 1
            state = self.random.choice([RoundState.DONE] * 3 + [RoundState.QUEUED, RoundState.CANCELLED])
            Rounds(session).close(hold, state)
            started = Round.finished_at - self.random.choice([0.5, 2.0, 8.0])
            session.execute(update(Round).where(Round.id == round_id).values(started_at=started))

    def lose(self, session):
        for round_id, hold in self._leased(session):
            Leases(session).end(hold)
            Rounds(session).move(round_id, RoundState.POISON, error="died")

    def cancel(self, session):
        job_id = self.random.choice(self.jobs)
        self.random.choice([Rounds.cancel_open, Rounds.cancel_queued])(Rounds(session), job_id)

    def disturb(self, session):
        Withdrawals(session).turn_into_bounds(Measurement.latency_us < self.random.uniform(1.0, 20.0), 1.0)

    def withdraw(self, session):
        Withdrawals(session).withdraw("bench")

    def rebuild(self, session):
        job = Jobs(session).get(self.random.choice(self.jobs), None)
        if job.context_id is not None:
            old = Contexts(session).get(job.context_id)
            other = "b1" if old.built_by == "b0" else "b0"
            ReplacedCode(session).move_to_new_builder(job.id, old, other)

    def bind(self, session):
        Jobs(session).bind_context(self.random.choice(self.jobs), self.random.choice(self.contexts))

    def settle(self, session):
        LearningCurves(session).settle(Jobs(session).get(self.random.choice(self.jobs), None))

    def act(self):
        usual = [self.open, self.open, self.claim, self.measure, self.close, self.settle]
        rare = [self.submit, self.lose, self.cancel, self.rebuild, self.bind]
        rarest = [self.disturb, self.withdraw]
        actions = self.random.choices([*usual, *rare, *rarest], [*[9] * 6, *[1] * 5, *[0.2] * 2])
        self.write(lambda session: [action(session) for action in actions])

    def check(self):
        def compare(session):
            for job_id in self.jobs:
                job, options = Jobs(session).get(job_id, None), JobOptions()
                tasks = TaskHistories(session).of(job)
                view = job_view(FairShares(session).job_to_plan(job_id), options, tasks)
                assert rounded(view) == rounded(whole_view(session, job, options))
                self.seen["points"] += sum(len(task.points) for task in view.tasks)
            self.seen["stored"] += session.scalar(select(func.count()).select_from(LearningCurve)) or 0

        self.random.choice([self.read, self.write])(compare)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happened_a_plan_sees_what_all_rounds_tell(database, seed):
    fleet = Fleet(database, seed)
    for _ in range(250):
        fleet.act()
        if fleet.random.random() < 0.1:
            fleet.check()
    fleet.check()
    assert fleet.seen["closed"] > 10
    assert fleet.seen["stored"] > 10
    assert fleet.seen["points"] > 100


def measured(rows, *times_us, workload="w0"):
    """A closed round with a candidate for each of these times, and room for no more."""
    batch = [rows.ok(slot, us, decisions=(len(times_us), slot)) for slot, us in enumerate(times_us)]
    return rows.closed_round(*batch, workload=workload)


def history(rows, index=0):
    return rows.read(lambda s: TaskHistories(s).of(Jobs(s).get(rows.job_id, None)))[index]


def settle(rows):
    rows.write(lambda session: LearningCurves(session).settle(Jobs(session).get(rows.job_id, None)))


@pytest.fixture
def bound(rows):
    """The job measures in a context."""
    rows.write(lambda session: Jobs(session).bind_context(rows.job_id, rows.context_id))
    return rows


def test_settled_rounds_are_read_no_more(bound):
    measured(bound, 9.0, 7.0)
    measured(bound, 8.0)
    before = history(bound)
    assert not before.is_settled
    settle(bound)
    session_rounds = bound.read(lambda s: LearningCurves(s).rounds(Jobs(s).get(bound.job_id, None)))
    assert session_rounds == []
    after = history(bound)
    assert after.is_settled
    assert (after.own, after.curve) == (before.own, before.curve)
    assert [point.best_us for point in after.curve.points] == [7.0, 8.0]


def test_a_round_that_closes_later_is_read_until_it_is_settled_too(bound):
    measured(bound, 9.0)
    settle(bound)
    newest = measured(bound, 4.0)
    unsettled = bound.read(lambda s: LearningCurves(s).rounds(Jobs(s).get(bound.job_id, None)))
    assert [one.id for one in unsettled] == [newest]
    assert [point.best_us for point in history(bound).curve.points] == [9.0, 4.0]


def test_rounds_from_before_the_curves_count_without_a_backfill(bound):
    measured(bound, 9.0)
    measured(bound, 4.0)
    before = history(bound)
    # As the migration leaves it.
    bound.write(lambda session: session.execute(update(Task).values(closed=None)))
    assert (history(bound).own, history(bound).curve) == (before.own, before.curve)
    settle(bound)
    assert (history(bound).own, history(bound).curve) == (before.own, before.curve)
    assert history(bound).is_settled


def test_settling_twice_counts_nothing_twice(bound):
    measured(bound, 9.0)
    settle(bound)
    once = history(bound)
    settle(bound)
    assert history(bound) == once


def test_an_unexplored_workload_has_no_curve_and_nothing_to_settle(bound):
    measured(bound, 9.0)
    settle(bound)
    keys = bound.read(lambda s: s.execute(select(LearningCurve.workload_id, LearningCurve.scope)).all())
    assert keys == [(bound.workloads["w0"], "")]
    assert history(bound, 1).is_settled


def test_a_wrong_result_is_found_in_rounds_that_are_settled(bound):
    measured(bound, 3.0)
    measured(bound, 5.0, 6.0)
    settle(bound)
    wrong = bound.failed(0, Outcome.WRONG_RESULT, decisions=(1, 0))
    bound.closed_round(wrong)
    assert [point.best_us for point in history(bound).curve.points] == [None, 5.0, None]
    settle(bound)
    assert history(bound).is_settled, "nothing is left to store, though all rounds are read"


def test_a_wrong_result_of_a_candidate_without_a_time_leaves_a_plan_to_the_stored_curve(bound, monkeypatch):
    measured(bound, 3.0)
    bound.closed_round(bound.failed(0, Outcome.WRONG_RESULT, decisions=(9, 9)))
    settle(bound)
    asked, rounds = [], LearningCurves.rounds
    monkeypatch.setattr(LearningCurves, "rounds", lambda *asks: asked.append(asks[2:]) or rounds(*asks))
    assert [point.best_us for point in history(bound).curve.points] == [3.0, None]
    assert not any(bound.workloads["w0"] in ids for asks in asked for ids in asks)


def closed(trials, best_us, closed_at=1.0, state=RoundState.DONE, **changes):
    return WorkloadRound("job", state, 16, trials, best_us, False, 2.0, closed_at, **changes)


def test_a_curve_has_a_bounded_number_of_points_that_keep_all_trials_and_the_best():
    count, random = 5_000, Random(1)
    times = [random.uniform(1.0, 9.0) for _ in range(count)]
    curve = WorkloadCurve()
    for at, best_us in enumerate(times):
        curve = curve.with_rounds([closed(16, best_us, closed_at=float(at))])
        assert len(curve.points) <= MOST_POINTS
    assert sum(point.trials for point in curve.points) == 16 * count == curve.timed_trials
    assert min(point.best_us for point in curve.points) == min(times)
    assert [point.best_us for point in curve.points[-200:]] == times[-200:]
    assert [point.closed_at for point in curve.points] == sorted(point.closed_at for point in curve.points)


def test_points_are_stored_in_few_bytes_and_as_they_were():
    points = (WorkloadPoint(1.7e9 + 0.123, 16, 12.345678901234), WorkloadPoint(1.7e9 + 1, 2**40, None))
    assert unpack_points(pack_points(points)) == points
    assert len(pack_points(points * (MOST_POINTS // 2))) <= 12 * 1024


def waits_for_a_name(session):
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    return session.scalar(text(waiting)) == 1


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_curve_is_not_computed_from_times_that_are_just_changing(bound):
    measured(bound, 3.0)
    measured(bound, 5.0)
    with ThreadPoolExecutor(1) as pool:
        with bound.database.transaction() as session:
            Withdrawals(session).turn_into_bounds(Measurement.latency_us < 4.0, 1.0)
            settling = pool.submit(settle, bound)
            wait_for(lambda: bound.read(waits_for_a_name), "the lock of the curves")
        settling.result()
    assert [point.best_us for point in history(bound).curve.points] == [None, 5.0]
    assert history(bound).is_settled
