"""What a job with `dataset=read` measures is its own; one with `dataset=off` knows nothing else."""

import pytest
from sqlalchemy import update

from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState, RoundState
from mallorn.core.values.finish_report import FinishReport
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.schedules import BestRecords
from mallorn.db.repositories.snapshots import Selection, SnapshotRows
from mallorn.db.repositories.tasks import NewTask, TaskHistories, Tasks
from mallorn.db.repositories.trials import MeasuredTasks, Trials
from mallorn.db.repositories.workloads import Networks
from mallorn.db.tables import Job, Measurement, Round, Task
from tests.fixtures.rows import Rows, new_job

TIMES_US = {"write": 10.0, "read": 7.0, "off": 5.0}


class Datasets(Rows):
    """A job of `w0` with each value of the option, each with one measurement."""

    def _fill(self, session, workloads, owner):
        super()._fill(session, workloads, owner)
        self.jobs = {"write": self.job_id}
        for dataset in ("read", "off"):
            options = JobOptions(dataset=dataset).model_dump(mode="json")
            new = new_job(owner, target_id=self.target_id, options=options)
            job_id = self.jobs[dataset] = Jobs(session).create(new)[0].id
            Tasks(session).add_many(job_id, [NewTask(0, "w0", 1, self.workloads["w0"], "matmul")])
            Jobs(session).move_to_state(job_id, [JobState.QUEUED], JobState.TUNING)
        session.execute(update(Job).values(context_id=self.context_id))
        session.execute(update(Task).values(family="operator:matmul"))

    def measure(self, dataset, slot):
        round_id = self.write(lambda session: self.add_round(session, "w0", self.jobs[dataset]))
        hold = self.write(lambda session: Rounds(session).claim(round_id, "w", 60))
        batch = [self.ok(slot, TIMES_US[dataset])]
        self.write(lambda session: Measurements(session).add_trials(hold, batch))
        self.write(lambda session: Rounds(session).close(hold, RoundState.DONE))

    def ask(self, dataset, question):
        """The answer of `question(trials, workload id)` for the job with this value; None: for no job."""

        def answer(session):
            job = None if dataset is None else Jobs(session).get(self.jobs[dataset], None)
            return question(Trials(session, job), self.workloads["w0"])

        return self.read(answer)


@pytest.fixture
def datasets(database):
    rows = Datasets(database)
    for slot, dataset in enumerate(TIMES_US):
        rows.measure(dataset, slot)
    return rows


READABLE = {None: {10.0}, "write": {10.0}, "read": {10.0, 7.0}, "off": {5.0}}


@pytest.mark.parametrize(("dataset", "times_us"), READABLE.items())
def test_a_job_learns_from_jobs_that_write_and_from_itself(datasets, dataset, times_us):
    target = datasets.target_id
    history = datasets.ask(dataset, lambda trials, workload: trials.history(workload, target))
    assert {trial.latency_us for trial in history} == times_us
    best = datasets.ask(dataset, lambda trials, workload: trials.best(workload, target, 9))
    assert {trial.latency_us for trial in best} == times_us
    known = datasets.ask(dataset, lambda trials, one: trials.count_learnable_by_workload([one], target))
    assert known == {datasets.workloads["w0"]: len(times_us)}
    columns = datasets.ask(
        dataset, lambda trials, _: trials.read_family_columns("operator:matmul", target, 99)[0]
    )
    assert set(columns["latency_us"]) == times_us


@pytest.mark.parametrize("dataset", TIMES_US)
def test_imported_rows_are_for_jobs_that_read(datasets, dataset):
    datasets.write(lambda session: session.execute(update(Measurement).values(kind="foreign", job_id=None)))
    target = datasets.target_id
    imported = datasets.ask(dataset, lambda trials, one: trials.best(one, target, 9, imported=True))
    assert len(imported) == (0 if dataset == "off" else 3)


@pytest.mark.parametrize("dataset", TIMES_US)
def test_the_planner_counts_the_rounds_that_the_job_may_use(datasets, dataset):
    def read(session):
        job = Jobs(session).get(datasets.jobs[dataset], None)
        [summary, *_] = Tasks(session).summaries(job.id)
        return TaskHistories(session).of(job)[0].curve.points, summary.best_us

    points, best_us = datasets.read(read)
    assert {one.best_us for one in points} == READABLE[dataset]
    assert best_us == min(READABLE[dataset])


def test_only_what_was_contributed_is_exported_shared_and_recorded(datasets):
    upto = datasets.write(lambda session: SnapshotRows(session).find_newest_settled_id())
    page = datasets.read(lambda session: SnapshotRows(session).page(Selection(), 0, upto))
    assert list(page["latency_us"]) == [TIMES_US["write"]]
    best = datasets.read(lambda session: BestRecords(session).of_target(datasets.target_id, "own"))
    assert [record.trial.latency_us for record in best] == [TIMES_US["write"]]
    [task] = datasets.read(lambda session: MeasuredTasks(session).list())
    recorded = datasets.read(lambda session: MeasuredTasks(session).trials(task))
    assert [trial.latency_us for trial in recorded] == [TIMES_US["write"]]


@pytest.mark.parametrize(("dataset", "counted"), [("write", True), ("read", False), ("off", False)])
def test_networks_and_reports_are_those_of_jobs_that_write(datasets, dataset, counted):
    def keep(session):
        of_others = Job.id != datasets.jobs[dataset]
        session.execute(update(Task).where(Task.job_id != datasets.jobs[dataset]).values(weight=0))
        session.execute(update(Job).where(of_others).values(state=JobState.FAILED))
        session.execute(update(Job).values(started_at=1.0, finished_at=2.0))
        Jobs(session).store_report_columns(datasets.jobs[dataset], report=FinishReport())
        session.execute(update(Round).values(state=RoundState.DONE))
        Jobs(session).move_to_state(datasets.jobs[dataset], list(JobState), JobState.DONE)

    datasets.write(keep)
    assert bool(datasets.read(lambda session: Networks(session).call_counts_by_network())) is counted
    assert bool(datasets.read(lambda session: Jobs(session).reports(datasets.context_id))) is counted
