"""An upgrade under jobs that go on: their models are imported anew, and times of both codes never meet."""

import pytest
from sqlalchemy import select, update

from mallorn.core.job_options import KeptOptions
from mallorn.core.states import JobState, RoundState, WorkKind
from mallorn.core.values.fleet import WorkerInfo
from mallorn.core.values.trial import DecidedTask
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.job_progress import progress
from mallorn.db.repositories.job_transitions import ReplacedCode
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import WorkItem
from mallorn.db.repositories.tasks import TaskHistories, Tasks
from mallorn.db.repositories.workers import FRESH_SEC, Workers
from mallorn.db.tables import Context, Device, FinishStep, Task, Worker
from mallorn.services.control.plan_job import job_view
from mallorn.workers.host import code_digest as code
from tests.fixtures.work import finish, import_job
from tests.fixtures.workshop import ENDPOINT
from tests.integration.workers.test_importing import found

TVM = ENDPOINT.tvm_version


class Fleet:
    """A worker whose code a test replaces, and who else works."""

    def __init__(self, workshop, monkeypatch):
        self.workshop = workshop
        self._patch = monkeypatch
        monkeypatch.setattr("mallorn.core.job_options.ON_DEVICES", {"made-up"})
        self.upgrade("passes one")

    def upgrade(self, passes, tvm=TVM):
        """Another state of the code: it has other passes, another code generation or another TVM."""
        self._patch.setattr(code, "code_parts", lambda: {"graphc": passes, "apache-tvm": tvm})
        self._patch.setattr(code, "TVM_VERSION", tvm)
        self.lose(self.workshop.name)
        self.workshop.name = f"w with {passes}"  # it was restarted
        self.see(self.workshop.name)

    def see(self, name):
        """A worker with the code of now is alive."""
        info = WorkerInfo(tvm_version=code.TVM_VERSION, builder=code.current_builder_name())
        self.workshop.write(lambda session: Workers(session).record_seen(name, "host", info))

    def lose(self, name):
        """A worker is silent for long."""
        silent = update(Worker).where(Worker.id == name).values(last_seen=Worker.last_seen - 2 * FRESH_SEC)
        self.workshop.write(lambda session: session.execute(silent))


@pytest.fixture
def fleet(workshop, monkeypatch):
    workshop.store_model()
    return Fleet(workshop, monkeypatch)


def begun(workshop, *names, trials=64):
    """A job whose model was imported here, with a round of trials on its first task that is visited."""
    workshop.graph_answers["extract"] = found(*names)
    job = workshop.job((), trials=trials)
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.TUNING], JobState.QUEUED))
    assert import_job(workshop, job)
    workshop.closed_round(job)
    return job


def job_of(workshop, job):
    return workshop.read(lambda session: Jobs(session).get(job, None))


def built_by(workshop, context_id):
    return workshop.read(lambda session: session.get_one(Context, context_id)).built_by


def told(workshop, job):
    return " ".join(warning.message for warning in job_of(workshop, job).warnings)


def tasks_of(workshop, job):
    """By workload, all that the job ever had."""
    rows = workshop.read(lambda session: session.scalars(select(Task).where(Task.job_id == job)).all())
    return {task.name.removeprefix("fused_"): task for task in rows}


def builders_of(workshop, rows):
    """The builders of what was timed."""
    return {built_by(workshop, row.context_id) for row in rows if row.context_id is not None}


def test_a_job_goes_on_with_the_tasks_of_todays_passes_and_mixes_no_times(fleet, workshop, check, exported):
    job = begun(workshop, "w0", "w1", trials=24)
    first, before, tried = (
        code.current_builder_name(),
        tasks_of(workshop, job),
        len(workshop.rows(job_id=job)),
    )
    fleet.upgrade("passes two")
    round_id = workshop.next_round(job)
    assert workshop.run(round_id) is None
    assert workshop.state(job) == JobState.QUEUED
    assert workshop.round(round_id).state == RoundState.CANCELLED
    assert len(workshop.rows(job_id=job)) == tried, "nothing is built for tasks of other passes"
    assert "imported anew" in told(workshop, job)
    assert f"({first}, now {code.current_builder_name()})" in told(workshop, job)

    workshop.graph_answers["extract"] = found("w2", "w0")
    assert import_job(workshop, job)
    assert workshop.state(job) == JobState.TUNING
    after = tasks_of(workshop, job)
    assert (after["w0"].id, after["w0"].index, after["w2"].index) == (before["w0"].id, 1, 0)
    assert after["w1"].id == before["w1"].id
    assert after["w1"].retired

    workshop.work(job)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    rows = workshop.rows(job_id=job)
    assert builders_of(workshop, rows[:tried]) == {first}
    assert builders_of(workshop, rows[tried:]) == {code.current_builder_name()}
    assert len(workshop.rows(job_id=job, kind="trial")) == 24, "what was spent stays spent"
    assert {row.workload_id for row in rows[tried:]} == {after["w0"].workload_id, after["w2"].workload_id}
    assert set(job_of(workshop, job).report.tasks_us) == {"fused_w0", "fused_w2"}


def test_a_finish_is_done_for_tasks_of_todays_passes_alone(fleet, workshop, check, exported):
    job = begun(workshop, "w0", trials=8)
    workshop.work(job)
    assert workshop.state(job) == JobState.FINISHING
    fleet.upgrade("passes two")
    finish(workshop, job)
    assert workshop.state(job) == JobState.QUEUED
    assert check.asked == []
    workshop.graph_answers["extract"] = found("w0", "w1")
    import_job(workshop, job)
    workshop.work(job)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert len(workshop.rows(job_id=job, kind="trial")) == 8
    assert set(job_of(workshop, job).report.tasks_us) == {"fused_w0", "fused_w1"}


def test_its_import_is_found_by_the_next_worker_that_looks(fleet, workshop):
    job = begun(workshop, "w0")
    fleet.upgrade("passes two")
    workshop.run(workshop.next_round(job))
    hold = workshop.claim(WorkKind.IMPORT)
    assert hold is not None
    assert hold.item == WorkItem(WorkKind.IMPORT, job)


def test_passes_that_make_the_same_tasks_keep_everything_but_the_context(fleet, workshop):
    job = begun(workshop, "w0", "w1")
    before = {name: (task.id, task.weight) for name, task in tasks_of(workshop, job).items()}
    fleet.upgrade("passes two")
    workshop.run(workshop.next_round(job))
    import_job(workshop, job)
    assert {name: (task.id, task.weight) for name, task in tasks_of(workshop, job).items()} == before
    assert workshop.state(job) == JobState.TUNING


def test_trials_of_other_code_are_spent_and_tell_nothing_of_a_tasks_curve(fleet, workshop):
    job = begun(workshop, "w0", trials=64)
    for _ in range(3):
        workshop.closed_round(job)
    fleet.upgrade("passes two")
    workshop.run(workshop.next_round(job))
    import_job(workshop, job)

    def view(session):
        row = FairShares(session).job_to_plan(job)
        options = KeptOptions.model_validate(row.job.options)
        return job_view(row, options, TaskHistories(session).of(row.job)), progress(session, row.job)

    spent = len(workshop.rows(job_id=job))
    seen, done = workshop.read(view)
    (task,) = seen.tasks
    assert (seen.spent_trials, done.spent) == (spent, spent)
    assert (task.points, task.rounds, task.failed_rounds, task.best_us) == ((), 0, 0, None)
    assert done.best_us == {}


def test_the_fastest_of_the_code_of_before_is_timed_again_in_the_contest(fleet, workshop, check, exported):
    job = begun(workshop, "w0", trials=8)
    workshop.work(job)
    trials = [row for row in workshop.rows(job_id=job) if row.latency_us]
    best = min(trials, key=lambda row: row.latency_us)
    fleet.upgrade("passes two")
    finish(workshop, job)
    import_job(workshop, job)
    workshop.plan(job)
    finish(workshop, job)
    again = workshop.rows(job_id=job, kind="finish")
    assert (best.sketch_id, best.decisions) in {(row.sketch_id, row.decisions) for row in again}
    assert builders_of(workshop, again) == {code.current_builder_name()}


def test_beside_a_worker_that_still_has_its_code_a_job_waits_for_that_one(fleet, workshop):
    job = begun(workshop, "w0", "w1")
    first, context_id = code.current_builder_name(), job_of(workshop, job).context_id
    tried = len(workshop.rows(job_id=job))
    fleet.see("old")
    fleet.upgrade("passes two")
    round_id = workshop.next_round(job)
    assert workshop.run(round_id) is None
    assert workshop.state(job) == JobState.TUNING
    assert workshop.round(round_id).state == RoundState.QUEUED
    assert (
        f"built by TVM {first}, and worker {workshop.name} has {code.current_builder_name()}"
        in workshop.explanation(job)
    )
    assert job_of(workshop, job).context_id == context_id
    assert len(workshop.rows(job_id=job)) == tried

    fleet.lose("old")
    assert workshop.run(round_id) is None
    assert workshop.state(job) == JobState.QUEUED
    assert built_by(workshop, job_of(workshop, job).context_id) == code.current_builder_name()


def test_beside_one_another_both_codes_do_their_own_jobs(fleet, workshop):
    old = begun(workshop, "w0")
    first = code.current_builder_name()
    fleet.see("old")
    fleet.upgrade("passes two")
    new = begun(workshop, "w0")
    assert builders_of(workshop, workshop.rows(job_id=old)) == {first}
    assert builders_of(workshop, workshop.rows(job_id=new)) == {code.current_builder_name()}
    tried = [{row.decisions for row in workshop.rows(job_id=job)} for job in (old, new)]
    assert tried[0] & tried[1], "what the other code timed is no history of the new job"


def test_an_import_that_was_sent_back_is_left_to_the_code_of_its_job(fleet, workshop):
    job = begun(workshop, "w0")
    fleet.upgrade("passes two")
    workshop.run(workshop.next_round(job))
    second = code.current_builder_name()
    fleet.see("right")
    fleet.upgrade("passes three")
    workshop.graph_answers["extract"] = AssertionError("another worker imports it")
    assert import_job(workshop, job) is None
    assert workshop.state(job) == JobState.IMPORTING
    assert f"built by TVM {second}" in workshop.explanation(job)


def test_a_worker_with_another_linker_goes_on_with_what_another_one_imported(fleet, workshop, monkeypatch):
    monkeypatch.setattr("mallorn.core.job_options.ON_DEVICES", {"tvm"})
    job = begun(workshop, "w0")
    fleet.see("with ld")
    parts = code.code_parts() | {"linker": "ld.lld"}
    monkeypatch.setattr(code, "code_parts", lambda: parts)
    assert workshop.run(workshop.next_round(job)) is not None
    assert workshop.state(job) == JobState.TUNING


def test_a_job_of_no_device_waits_for_the_code_that_imported_it_or_is_imported_anew(
    fleet, workshop, monkeypatch
):
    monkeypatch.setattr("mallorn.core.job_options.ON_DEVICES", {"tvm"})
    job = begun(workshop, "w0")
    first = code.code_digest()
    fleet.see("old")
    fleet.upgrade("passes two")
    round_id = workshop.next_round(job)
    assert workshop.run(round_id) is None
    assert f"code {first}" in workshop.explanation(job)
    fleet.lose("old")
    workshop.run(round_id)
    assert workshop.state(job) == JobState.QUEUED


def test_another_tvm_under_worker_and_device_takes_the_job_along(fleet, workshop):
    job = begun(workshop, "w0")
    fleet.upgrade("passes one", tvm="0.28.0")
    workshop.write(lambda session: session.execute(update(Device).values(tvm_version="0.28.0")))
    round_id = workshop.next_round(job)
    context = workshop.read(lambda session: session.get_one(Context, job_of(workshop, job).context_id))
    assert (context.tvm_version, context.built_by) == ("0.28.0", code.current_builder_name())
    assert code.current_builder_name().startswith("0.28.0+")
    workshop.run(round_id)
    assert workshop.state(job) == JobState.QUEUED
    assert "are not comparable" in told(workshop, job)


def test_another_tvm_of_a_device_alone_is_waited_out(fleet, workshop):
    """Its worker is what it was: whoever started the device may have taken a wrong environment."""
    job = begun(workshop, "w0")
    workshop.write(lambda session: session.execute(update(Device).values(tvm_version="0.28.0")))
    before = job_of(workshop, job).context_id
    workshop.plan(job)
    assert job_of(workshop, job).context_id == before
    assert "0.28.0" in workshop.explanation(job)


def test_what_a_finish_decided_is_forgotten_with_the_tasks_it_was_decided_for(fleet, workshop):
    job = begun(workshop, "w0", trials=8)
    workshop.work(job)
    (task,) = tasks_of(workshop, job).values()
    step = {"task_id": task.id, "job_id": job, "trials": 8, "decided": DecidedTask(candidates=())}
    workshop.write(lambda session: session.add(FinishStep(**step)))
    assert workshop.write(lambda session: ReplacedCode(session).import_again(job))
    assert workshop.read(lambda session: session.scalars(select(FinishStep)).all()) == []
    assert not workshop.write(lambda session: ReplacedCode(session).import_again(job)), (
        "it waits for its import already"
    )


def test_a_task_that_comes_back_is_the_one_that_it_was(fleet, workshop):
    job = begun(workshop, "w0", "w1")
    ids = {name: task.id for name, task in tasks_of(workshop, job).items()}
    for names in (("w1",), ("w1", "w0")):
        workshop.write(lambda session: ReplacedCode(session).import_again(job))
        workshop.graph_answers["extract"] = found(*names)
        fleet.upgrade(f"passes of {names}")
        import_job(workshop, job)
    assert {name: task.id for name, task in tasks_of(workshop, job).items()} == ids
    assert [task.name for task in workshop.read(lambda session: Tasks(session).list(job))] == [
        "fused_w1",
        "fused_w0",
    ]
