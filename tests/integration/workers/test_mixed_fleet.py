"""Two classes of host serve one target: all that a job measures is of one of them, and says so."""

from dataclasses import replace
from itertools import cycle

import pytest
from sqlalchemy import select, update

from mallorn.core.states import JobState, RoundState
from mallorn.core.values.fleet import WorkerInfo
from mallorn.core.values.machine import Machine
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import WorkItem
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.tasks import TaskHistories
from mallorn.db.repositories.workers import Workers
from mallorn.db.tables import Context, Measurement, Schedule, Worker
from mallorn.workers.host.code_digest import current_builder_name
from tests.fixtures.work import finish
from tests.fixtures.workshop import ENDPOINT

OTHER = replace(ENDPOINT, name="other", host_class="another")
MACHINE = Machine(
    cores=3, lanes=5, registers=7, in_flight=9, core_gflops=1.0, memory_gbytes_per_sec=1.0, fork_us=1.0
)


@pytest.fixture
def mixed(workshop):
    """Devices of two classes, of which a measurer takes the next that fits what it is told."""
    row = cycle([OTHER, ENDPOINT])

    def tools(like):
        bench = workshop.bench
        fitting = (each for each in row if like in (None, each.device_class))
        bench.before = lambda _slot: setattr(bench, "endpoint", next(fitting))
        return bench

    workshop.tools = tools
    return workshop


def contexts(workshop, job, **where):
    """The contexts of what a job timed."""
    timed = Measurement.job_id == job, Measurement.context_id.is_not(None)
    query = select(Measurement.context_id).where(*timed).distinct()
    return set(workshop.read(lambda session: session.scalars(query.filter_by(**where)).all()))


def own(workshop, job):
    return workshop.read(lambda session: Jobs(session).get(job, None).context_id)


def test_all_times_of_a_job_are_of_the_class_that_it_began_on(mixed, check, exported):
    job = mixed.job(("w0", "w1"), trials=32)
    mixed.work(job)
    assert contexts(mixed, job) == {own(mixed, job)}
    finish(mixed, job)
    assert mixed.state(job) == JobState.DONE
    assert contexts(mixed, job, kind="finish") == {own(mixed, job)}


def test_a_schedule_says_the_context_that_it_was_timed_in(workshop, check, exported):
    job = workshop.job(("w0",), trials=16)
    workshop.work(job)
    workshop.bench.endpoint = OTHER  # its host became another after it was taken
    finish(workshop, job)
    (schedule,) = workshop.read(lambda session: session.scalars(select(Schedule)).all())
    (measured,) = workshop.rows(id=schedule.measurement_id)
    assert schedule.context_id == measured.context_id != own(workshop, job)


def test_the_best_that_is_planned_with_is_of_the_jobs_own_context(workshop):
    job = workshop.job(("w0",), trials=16)
    round_id = workshop.next_round(job)
    workshop.bench.endpoint = OTHER
    workshop.run(round_id)
    (task,) = workshop.read(lambda session: TaskHistories(session).of(Jobs(session).get(job, None)))
    assert task.own.trials > 0
    assert task.curve.points == (), "all its times are from another context"


@pytest.fixture
def builds(workshop, monkeypatch):
    """The made-up measurer counts as the one whose candidates the worker's own code builds."""
    monkeypatch.setattr("mallorn.core.job_options.ON_DEVICES", {"made-up"})
    return workshop


def see_worker(workshop, name, **info):
    workshop.write(lambda session: Workers(session).record_seen(name, "host", WorkerInfo(**info)))


def built_by(workshop, job):
    return workshop.read(lambda session: session.get_one(Context, own(workshop, job)).built_by)


def test_every_context_of_what_is_built_here_names_tvm_and_the_code_around_it(builds):
    job = builds.job(("w0",), trials=16)
    builds.work(job)
    assert built_by(builds, job) == current_builder_name()
    assert contexts(builds, job) == {own(builds, job)}


def test_contexts_without_a_builder_keep_their_keys_and_are_others(workshop):
    def ensured(**built_by):
        where = workshop.target_id, "made-up", "0.27.0", 2, {}
        return workshop.write(lambda session: Contexts(session).ensure(*where, **built_by).id)

    assert ensured() == ensured(built_by="0.27.0") != ensured(built_by="0.27.0+abc")


@pytest.mark.parametrize("told", [{}, {"builder": "0.27.0+abc"}], ids=["old", "other"])
def test_a_worker_with_other_code_leaves_the_round_to_one_that_has_the_jobs(builds, told):
    """An old worker names its TVM alone, and builds what is of a context without a builder."""
    see_worker(builds, "right", tvm_version="0.27.0", **told)
    job = builds.job(("w0",), trials=16)
    round_id = builds.next_round(job)
    assert built_by(builds, job) == told.get("builder")
    assert builds.run(round_id) is None
    assert builds.rows() == []
    assert builds.round(round_id).state == RoundState.QUEUED
    assert builds.held(WorkItem.for_round(round_id)).losses == 0
    wanted = told.get("builder", "0.27.0")
    assert (
        f"is built by TVM {wanted}, and worker w has {current_builder_name()}; it waits"
        in builds.explanation(job)
    )


def test_a_job_is_planned_for_the_newest_worker_that_runs_rounds(builds):
    see_worker(builds, "old", tvm_version="0.27.0")
    see_worker(builds, "new", builder=current_builder_name())
    see_worker(builds, "importer", builder="0.27.0+other", can_tune=False)
    job = builds.job(("w0",), trials=16)
    builds.next_round(job)
    assert built_by(builds, job) == current_builder_name()


def test_a_job_whose_builder_is_gone_gets_its_machine_anew_from_the_worker_that_goes_on(builds):
    see_worker(builds, "gone", tvm_version="0.27.0", builder="0.27.0+abc")
    job = builds.job(("w0",), trials=16)
    round_id = builds.next_round(job)
    builds.write(lambda session: Jobs(session).bind_machine(job, MACHINE))
    silent = update(Worker).where(Worker.id == "gone").values(last_seen=0.0)
    builds.write(lambda session: session.execute(silent))
    assert builds.run(round_id) is not None
    assert built_by(builds, job) == current_builder_name()
    machine = builds.read(lambda session: Jobs(session).get(job, None).machine)
    assert machine not in (None, MACHINE)
