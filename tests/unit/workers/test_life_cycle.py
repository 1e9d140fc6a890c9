"""Whatever happens in whatever order, jobs end, no slot is stored twice and no budget is exceeded."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import String, and_, cast, select, update

from mallorn.core import queues
from mallorn.core.errors import Conflict, NoDevice
from mallorn.core.registry import REGISTRY
from mallorn.core.states import JobState, RoundState, WorkKind
from mallorn.core.targets import NATIVE
from mallorn.db.measurement_codec import unpack_decisions
from mallorn.db.repositories.job_progress import progress
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database
from mallorn.db.tables import LeaseRow, Measurement, Round, SketchRow, Workload
from mallorn.searchers.space import Candidate
from mallorn.services.control.periodic_tasks import collect_jobs_to_plan, requeue_expired_leases
from mallorn.workers.process.lookout import WAITED_SEC
from mallorn.workers.round.run import Commits
from tests.fixtures.stored import open_rounds, rounds_of
from tests.fixtures.work import run_best
from tests.fixtures.workshop import Workshop

TRIALS = 12
STEPS_TO_THE_END = 60


class Killed(BaseException):
    """SIGKILL."""


class JobLife(RuleBasedStateMachine):
    """Two jobs that want one workload, a broker that loses messages, and workers that die."""

    template: Path

    @initialize()
    def start(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mallorn-life-"))
        shutil.copyfile(self.template, self.folder / "mallorn.db")
        self.database = Database(f"sqlite:///{self.folder / 'mallorn.db'}")
        self.workshop = Workshop(self.database, self.folder)
        self.workshop.use_space(16, 16, 16)
        options = {"round_size": 5, "measurer": "made-up"}
        self.jobs = [
            self.workshop.job(("w0", "w1"), trials=TRIALS, **options),
            self.workshop.job(("w0",), trials=TRIALS, seed=1, **options),
        ]
        self.budgets = dict.fromkeys(self.jobs, TRIALS)
        self.broker = []
        self.kept = {}  # how often a candidate had run when it was first seen committed

    def teardown(self):
        if hasattr(self, "jobs"):
            self.end_all()
            self.check_the_end()
            self.database.dispose()
            shutil.rmtree(self.folder)

    @rule(number=st.integers(0, 1))
    def plan(self, number):
        self.broker += self.workshop.plan(self.jobs[number])

    @rule()
    def sweep_and_reap(self):
        self.age()
        self.broker += collect_jobs_to_plan(self.database)
        if self.workshop.has_waiting():
            self.broker.append((queues.WORK, NATIVE))
        self.broker += requeue_expired_leases(self.database)

    @precondition(lambda self: self.broker)
    @rule(data=st.data())
    def a_message_is_lost(self, data):
        self.broker.pop(data.draw(st.integers(0, len(self.broker) - 1)))

    @precondition(lambda self: self.broker)
    @rule(data=st.data(), twice=st.booleans())
    def a_message_arrives(self, data, twice):
        at = data.draw(st.integers(0, len(self.broker) - 1))
        self.serve(self.broker[at] if twice else self.broker.pop(at))

    @precondition(lambda self: self.open_rounds())
    @rule(data=st.data(), after=st.integers(0, 5))
    def a_worker_dies_in_a_round(self, data, after):
        round_id = data.draw(st.sampled_from(self.open_rounds()))
        self.disturb(after, Killed)
        with pytest.MonkeyPatch.context() as patch:
            self.on_kill = lambda: patch.setattr(Commits, "flush", lambda *_, **__: None)
            with suppress(Killed):
                self.workshop.run(round_id)
        self.calm()
        expired = update(LeaseRow).where(LeaseRow.until.is_not(None)).values(until=0.0)
        self.workshop.write(lambda session: session.execute(expired))

    @precondition(lambda self: self.open_rounds())
    @rule(data=st.data(), after=st.integers(0, 5))
    def the_device_leaves_in_a_round(self, data, after):
        round_id = data.draw(st.sampled_from(self.open_rounds()))
        self.disturb(after, NoDevice)
        self.workshop.run(round_id)
        self.calm()

    @rule(number=st.integers(0, 1), act=st.sampled_from(["pause", "resume"]))
    def an_owner_steers(self, number, act):
        with suppress(Conflict):
            self.workshop.write(lambda session: getattr(Jobs(session), act)(self.jobs[number], "ada"))

    @rule(number=st.integers(0, 1))
    def an_owner_asks_for_more(self, number):
        job = self.jobs[number]
        if self.workshop.state(job) == JobState.DONE and self.budgets[job] < 3 * TRIALS:
            self.workshop.write(lambda session: Jobs(session).resume(job, "ada", 6))
            self.budgets[job] += 6

    @invariant()
    def no_budget_is_exceeded(self):
        for job, budget in getattr(self, "budgets", {}).items():
            now = self.progress(job)
            assert now.spent + now.open_candidates <= budget

    @invariant()
    def no_slot_and_no_candidate_is_stored_twice(self):
        rows = self.workshop.rows(kind="trial") if hasattr(self, "jobs") else []
        assert len({(row.round_id, row.slot) for row in rows}) == len(rows)
        assert len({(row.workload_id, row.sketch_id, row.decisions) for row in rows}) == len(rows)

    @invariant()
    def nothing_that_is_committed_runs_again(self):
        if not hasattr(self, "jobs"):
            return
        ran = self.workshop.bench.executions
        for name in self.committed() - self.kept.keys():
            self.kept[name] = ran[name]
        assert all(ran[name] == count for name, count in self.kept.items())

    @invariant()
    def a_round_is_held_while_it_is_leased_and_waits_while_it_is_queued(self):
        for row, hold in self.holds() if hasattr(self, "jobs") else ():
            assert (hold.until is not None) == (row.state == RoundState.LEASED)
            assert (hold.due_at is not None) == RoundState(row.state).is_open

    @invariant()
    def a_workload_is_tuned_by_one_round_at_a_time(self):
        is_open = self.workshop.read(open_rounds) if hasattr(self, "jobs") else []
        assert len({row.workload_id for row in is_open}) == len(is_open)

    def serve(self, message):
        name, argument = message
        if name == queues.PLAN:
            self.broker += self.workshop.plan(argument)
        else:
            run_best(self.workshop, self.workshop.ability())
            for job in self.jobs:  # the finish itself has tests of its own
                self.workshop.write(
                    lambda s, job=job: Jobs(s).move_to_state(job, [JobState.FINISHING], JobState.DONE)
                )

    def disturb(self, after, error):
        seen = []

        def before(_slot):
            if len(seen) == after:
                if error is Killed:
                    self.on_kill()
                raise error
            seen.append(1)

        self.workshop.bench.before = before

    def calm(self):
        self.workshop.bench.before = lambda slot: None

    def age(self):
        """A while goes by in which nobody does anything."""
        self.workshop.age_work(WAITED_SEC + 1)

    def holds(self):
        """Every round with who holds it."""
        mine = LeaseRow.kind == WorkKind.ROUND, LeaseRow.subject == cast(Round.id, String)
        query = select(Round, LeaseRow).join(LeaseRow, and_(*mine))
        return self.workshop.read(lambda session: session.execute(query).all())

    def open_rounds(self):
        return [row.id for row in self.workshop.read(open_rounds)]

    def committed(self):
        """What is stored, by the names under which the device knows it."""
        query = select(Workload.key, SketchRow.key, Measurement.decisions)
        query = query.join(Workload, Workload.id == Measurement.workload_id)
        query = query.join(SketchRow, SketchRow.id == Measurement.sketch_id)
        found = self.workshop.read(lambda session: session.execute(query).all())
        return {(key, Candidate(sketch, unpack_decisions(packed)).key) for key, sketch, packed in found}

    def progress(self, job):
        return self.workshop.read(lambda session: progress(session, Jobs(session).get(job, None)))

    def end_all(self):
        """Nothing goes wrong any more: resume what is paused, and let the sweeper alone drive."""
        self.broker.clear()
        for job in self.jobs:
            if self.workshop.state(job) == JobState.PAUSED:
                self.workshop.write(lambda session, job=job: Jobs(session).resume(job, "ada"))
        for _ in range(STEPS_TO_THE_END):
            self.sweep_and_reap()
            messages, self.broker = self.broker, []
            for message in messages:
                self.serve(message)
            if all(self.workshop.state(job) == JobState.DONE for job in self.jobs):
                return

    def check_the_end(self):
        for job in self.jobs:
            assert self.workshop.state(job) == JobState.DONE
            now = self.progress(job)
            assert now.open_candidates == 0
            assert now.spent <= self.budgets[job]
            if not self.poisoned(job):
                assert now.spent == self.budgets[job], "nothing was lost"

    def poisoned(self, job):
        rounds = self.workshop.read(lambda session: rounds_of(session, job))
        return any(row.state == RoundState.POISON for row in rounds)


def test_every_job_ends_and_nothing_is_measured_twice_or_beyond_its_budget(
    sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REGISTRY["measurer"], "made-up", "tests.fixtures.workshop:MadeUpMeasurer")
    # Device and worker stay, however slow the test is.
    monkeypatch.setattr("mallorn.services.control.plan_target.FRESH_SEC", 1e6)
    monkeypatch.setattr("mallorn.db.repositories.workers.FRESH_SEC", 1e6)
    JobLife.template = sqlite_template
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    JobLife.TestCase.settings = settings(
        max_examples=12,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=slow,
        database=None,
        phases=[Phase.generate],  # shrinking would replay real databases for minutes
    )
    JobLife.TestCase().runTest()
