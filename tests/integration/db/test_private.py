"""What private jobs alone brought stays with their owner, wherever others read, until it is met elsewhere."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import insert, select, update

from mallorn.core.cost_model_name import private_family_prefix
from mallorn.core.errors import NotFound
from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState, RoundState
from mallorn.db.measurement_codec import unpack_text
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.cost_models import (
    CostModels,
    CostModelVersions,
    Features,
    FeatureSource,
    NewCostModel,
)
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.schedules import BestRecords
from mallorn.db.repositories.snapshots import Selection, SnapshotRows
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.trials import MeasuredTasks
from mallorn.db.repositories.workload_families import WorkloadFamilies
from mallorn.db.repositories.workloads import Networks, Workloads
from mallorn.db.tables import Job, Measurement, Round, Task
from tests.fixtures.rows import Rows, new_job, new_workload
from tests.fixtures.stored import workload_named

PRIVATE = JobOptions(private=True).model_dump(mode="json")
SECRET_MODEL = "b" * 64


class Private(Rows):
    """Ada's public job of `w0` and `w1`, and Bob's private one of `w0` and of his `secret`."""

    def _fill(self, session, workloads, owner):
        super()._fill(session, workloads, owner)
        new = [new_workload("secret"), new_workload("w0")]
        self.workloads |= Workloads(session).ensure_many(new, private=True)
        Models(session).add(SECRET_MODEL, "bob", "his secret", 10)
        wanted = new_job("bob", target_id=self.target_id, model_id=SECRET_MODEL, options=PRIVATE)
        self.private_job = Jobs(session).create(wanted)[0].id
        names = enumerate(("w0", "secret"))
        Tasks(session).add_many(
            self.private_job, [NewTask(at, name, 1, self.workloads[name], "matmul") for at, name in names]
        )
        Jobs(session).move_to_state(self.private_job, [JobState.QUEUED], JobState.TUNING)

    def measure(self, workload, latency_us, slot=0):
        """A row of Bob's job."""
        round_id = self.write(lambda session: self.add_round(session, workload, self.private_job))
        hold = self.write(lambda session: Rounds(session).claim(round_id, "w", 60))
        batch = [self.ok(slot, latency_us)]
        self.write(lambda session: Measurements(session).add_trials(hold, batch))
        self.write(lambda session: session.execute(update(Round).values(state=RoundState.DONE)))

    def publish(self, workload="secret"):
        """Somebody imports the same program for a job that is not private."""
        self.write(lambda session: Workloads(session).ensure_many([new_workload(workload)]))

    def frozen(self, **selected):
        upto = self.write(lambda session: SnapshotRows(session).find_newest_settled_id())
        return self.frozen_upto(upto, **selected)

    def frozen_upto(self, upto, **selected):
        page = self.read(lambda session: SnapshotRows(session).page(Selection(**selected), 0, upto))
        return list(page.rows("workload", "model"))


@pytest.fixture
def private(database):
    rows = Private(database)
    rows.measure("secret", 5.0)
    rows.measure("w0", 7.0)
    return rows


def test_two_imports_that_share_kept_programs_at_once_both_end(private):
    """As imports of jobs and of other people's logs do: programs first, then measurements of them."""
    begun, known = threading.Barrier(2), threading.Barrier(2)

    def meet(barrier):
        with suppress(threading.BrokenBarrierError):  # the other waits for us, where it has to
            barrier.wait(2)

    def brought(session, keys):
        session.scalars(select(Measurement)).all()
        meet(begun)
        ids = Workloads(session).ensure_many([new_workload(key) for key in keys])
        meet(known)
        row = select(Measurement).where(Measurement.workload_id == ids["secret"]).limit(1)
        found = session.scalars(row).one()
        values = {column.key: getattr(found, column.key) for column in Measurement.__table__.columns}
        del values["id"]
        session.execute(insert(Measurement).values(**values | {"slot": 2 + len(keys)}))
        return ids

    with ThreadPoolExecutor(2) as pool:
        keys = ["secret", "new a"], ["new b", "secret", "w0"]
        found = list(pool.map(lambda each: private.write(lambda session: brought(session, each)), keys))
    assert found[0]["secret"] == found[1]["secret"]
    assert private.frozen() == [("w0", None)] + [("secret", None)] * 2


def test_frozen_rows_leave_out_private_programs_and_the_private_models_name(private):
    assert private.frozen() == [("w0", None)]
    assert private.frozen(model=SECRET_MODEL) == []


def test_a_frozen_set_stays_the_same_when_a_program_becomes_known(private):
    upto = private.write(lambda session: SnapshotRows(session).find_newest_settled_id())
    private.publish()
    private.measure("secret", 4.0, slot=1)
    assert private.frozen_upto(upto) == [("w0", None)]
    assert private.frozen() == [("w0", None), ("secret", None)], "what is measured from then on is shared"


def test_best_records_leave_them_out(private):
    def told():
        found = private.read(lambda session: BestRecords(session).of_target(private.target_id, "own"))
        return {(record.name, record.trial.latency_us) for record in found}

    assert told() == {("fused_w0", 7.0)}
    private.publish()
    private.measure("secret", 9.0, slot=1)
    assert told() == {("fused_w0", 7.0), ("fused_secret", 9.0)}


def test_recordings_leave_them_out(private):
    measured = private.read(lambda session: MeasuredTasks(session).list())
    assert [task.workload_id for task in measured] == [private.workloads["w0"]]
    private.publish()
    private.measure("secret", 9.0, slot=1)
    secret = private.read(lambda session: MeasuredTasks(session).list())[1]
    trials = private.read(lambda session: MeasuredTasks(session).trials(secret))
    assert [trial.latency_us for trial in trials] == [9.0]


def test_networks_of_private_jobs_are_not_told(private):
    assert private.read(lambda session: Networks(session).call_counts_by_network()) == {
        "mlp": {"w0": 1, "w1": 2}
    }


def test_near_programs_are_those_that_the_owner_may_know(private):
    def known(owner):
        found = private.read(lambda session: Workloads(session).of_structure("s0", owner))
        return [workload.key for workload in found]

    assert known("ada") == ["w0", "w1"]
    assert known("bob") == ["w0", "w1", "secret"]
    private.publish()
    assert known("ada") == ["w0", "w1", "secret"]


def test_a_private_job_hides_nothing_that_was_known(private):
    assert private.read(lambda session: workload_named(session, "w0")).kept_upto == 0


@pytest.mark.parametrize("code", ["1", None])
def test_a_program_that_becomes_shared_keeps_no_name_of_the_private_job(private, code):
    his = replace(new_workload("private"), name="patient scan", tir="his buffers")
    private.write(lambda session: Workloads(session).ensure_many([his], private=True, code="1"))
    hers = replace(his, name="convolution", tir="her buffers")
    private.write(lambda session: Workloads(session).ensure_many([hers], code=code))
    row = private.read(lambda session: workload_named(session, "private"))
    assert (row.name, unpack_text(row.tir), row.code) == ("convolution", "her buffers", code)


def test_names_and_program_of_a_replaced_row_come_from_one_import(private):
    his = replace(new_workload("private"), name="patient scan", tir="his buffers")
    hers = replace(his, name="convolution", tir="her buffers")
    private.write(lambda session: Workloads(session).ensure_many([his], private=True, code="1"))
    private.write(lambda session: Workloads(session).ensure_many([hers], private=True, code="2"))
    row = private.read(lambda session: workload_named(session, "private"))
    assert (row.name, row.code) == ("convolution", "2"), "one import's columns, not two owners' mixed"


def test_a_second_private_owner_learns_of_their_own_program_and_shares_it_with_nobody(private):
    private.write(lambda session: Workloads(session).ensure_many([new_workload("secret")], private=True))
    keys = [each.key for each in private.read(lambda session: Workloads(session).of_structure("s0", "ada"))]
    assert "secret" not in keys


def test_families_of_private_jobs_are_not_met_by_others(private):
    scoped = f"{private_family_prefix('bob')}operator:matmul"

    def seat(session):
        session.execute(update(Task).values(family="operator:matmul").where(Task.job_id == private.job_id))
        session.execute(update(Task).values(family=scoped).where(Task.job_id == private.private_job))

    private.write(seat)
    shared = private.read(
        lambda session: WorkloadFamilies(session).members(private.job_id, private.target_id, "operator")
    )
    assert {each.key for each in shared} == {"w0", "w1"}


def test_versions_that_learned_for_a_private_job_are_its_owners(private):
    def add(session, family):
        return CostModels(session).add(NewCostModel(family, private.target_id, "xgboost", 1, 1, {}, b"")).id

    shared = private.write(lambda session: add(session, "operator:matmul"))
    his = private.write(lambda session: add(session, f"{private_family_prefix('bob')}operator:matmul"))

    def seen(owner):
        return {
            each.id for each in private.read(lambda session: CostModelVersions(session).page(owner)).items
        }

    assert (seen("ada"), seen("bob"), seen(None)) == ({shared}, {shared, his}, {shared, his})
    with pytest.raises(NotFound):
        private.read(lambda session: CostModelVersions(session).get(his, "ada"))
    with pytest.raises(NotFound):
        private.write(lambda session: CostModelVersions(session).activate(his, "ada"))
    assert private.write(lambda session: CostModelVersions(session).activate(his, "bob")).active


def test_statistics_call_a_model_as_its_owner_does(private):
    private.write(lambda session: Models(session).add(SECRET_MODEL, "ada", "another name", 10))
    told = private.read(lambda session: Statistics(session).of("bob"))
    assert [each.name for each in told.models] == ["his secret"]
    assert private.read(lambda session: Statistics(session).of("ada")).measurements == 0


def test_a_deleted_job_stays_private(private):
    private.write(
        lambda session: Jobs(session).move_to_state(private.private_job, list(JobState), JobState.DONE)
    )
    private.write(lambda session: Removals(session).delete(private.private_job, "bob"))
    assert private.read(lambda session: session.get(Job, private.private_job)).private
    assert private.frozen() == [("w0", None)]
    assert private.read(lambda session: Networks(session).call_counts_by_network()) == {
        "mlp": {"w0": 1, "w1": 2}
    }


def test_features_of_programs_that_only_deleted_private_jobs_brought_go(private):
    views = {
        name: FeatureSource(private.workloads[name], private.target_id, "statements", 1, "0.27.0")
        for name in ("w0", "secret")
    }
    for view in views.values():
        private.write(lambda session, view=view: Features(session).store(view, {"a": bytes(4)}))

    def kept():
        return {
            name
            for name, view in views.items()
            if private.read(lambda session, view=view: Features(session).read(view, ["a"]))
        }

    other = new_job("bob", target_id=private.target_id, model_id=SECRET_MODEL, options=PRIVATE)
    other_id = private.write(lambda session: Jobs(session).create(other)[0].id)
    task = NewTask(0, "secret", 1, private.workloads["secret"], "matmul")
    private.write(lambda session: Tasks(session).add_many(other_id, [task]))
    for job_id, left in ((private.private_job, {"w0", "secret"}), (other_id, {"w0"})):
        private.write(
            lambda session, job_id=job_id: Jobs(session).move_to_state(job_id, list(JobState), JobState.DONE)
        )
        private.write(lambda session, job_id=job_id: Removals(session).delete(job_id, "bob"))
        assert kept() == left
