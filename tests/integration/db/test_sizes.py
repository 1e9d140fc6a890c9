"""What grows with a model or a service goes into any statement: no number of tasks is too many."""

import pytest
from sqlalchemy import update

from benchmarks.filled.plans import listening
from mallorn.core.states import WorkKind
from mallorn.db.repositories.cost_models import Features, FeatureSource
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases
from mallorn.db.repositories.tasks import NewTask, TaskHistories, Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workload_families import FamilyMember, WorkloadFamilies
from mallorn.db.repositories.workloads import Sketches, Workloads
from mallorn.db.tables import Job
from tests.fixtures.rows import new_job, new_sketch, new_workload

MANY = 7_500  # of nine columns: more than either database takes parameters in a statement


def imported(session, rows, tasks):
    """What an import writes, through the functions that it writes with."""
    job = Jobs(session).create(new_job(target_id=rows.target_id))[0]
    keys = [f"w{number:05}" for number in range(tasks)]
    ids = Workloads(session).ensure_many([new_workload(key) for key in keys])
    Trials(session).count_learnable_by_workload(list(ids.values()), rows.target_id)
    Tasks(session).add_many(job.id, [NewTask(at, key, 1, ids[key]) for at, key in enumerate(keys)])
    return job.id


def test_a_job_has_any_number_of_tasks(rows):
    job_id = rows.write(lambda session: imported(session, rows, MANY))
    assert len(rows.read(lambda session: Tasks(session).list(job_id))) == MANY
    assert len(rows.read(lambda session: TaskHistories(session).of(Jobs(session).get(job_id, None)))) == MANY
    assert len(rows.read(lambda session: WorkloadFamilies(session).workloads_without_family(job_id))) == MANY
    assert len(rows.read(lambda s: WorkloadFamilies(s).members(job_id, rows.target_id, "operator"))) == MANY


def test_an_import_that_is_repeated_adds_no_task(rows):
    def again(session):
        ids = Workloads(session).ids(["w0"])
        Tasks(session).add_many(rows.job_id, [NewTask(0, "other", 1, ids["w0"])])
        return [task.name for task in Tasks(session).list(rows.job_id)]

    assert rows.write(again) == ["w0", "w1"]


def test_any_amount_of_work_is_locked_and_closed_at_once(rows):
    subjects = [f"job{number}" for number in range(40_000)]
    rows.write(lambda session: Leases(session).lock(WorkKind.IMPORT, subjects))
    rows.write(lambda session: Leases(session).close_work([WorkKind.IMPORT], subjects))


def test_any_number_of_jobs_is_followed(rows):
    marks = rows.read(lambda s: Jobs(s).read_event_marks([rows.job_id, *map(str, range(70_000))]))
    assert list(marks) == [rows.job_id]


def test_any_number_of_sketches_and_features_is_kept(rows):
    keys = [f"s{number:05}" for number in range(MANY)]
    ids = rows.write(lambda session: Sketches(session).ensure_many([new_sketch(key) for key in keys]))
    assert len(rows.read(lambda session: Sketches(session).rows(ids.values()))) == MANY
    of = FeatureSource(rows.workloads["w0"], rows.target_id, "view", 1, "0")
    rows.write(lambda session: Features(session).store(of, dict.fromkeys(keys)))
    assert rows.read(lambda session: Features(session).read(of, keys)) == dict.fromkeys(keys)


@pytest.mark.parametrize(("tasks", "minutes", "tunes_min"), [(4_000, 60, 30), (4_000, 400, 233), (2, 60, 59)])
def test_a_budget_in_minutes_tunes_for_half_of_it_at_least(rows, tasks, minutes, tunes_min):
    def left(session):
        job_id = imported(session, rows, tasks)
        session.execute(update(Job).where(Job.id == job_id).values(minutes=minutes))
        return FairShares(session).job_to_plan(job_id).seconds_left

    assert rows.write(left) / 60 == pytest.approx(tunes_min, abs=1.5)


def test_thousands_of_tasks_are_given_their_families_and_retired_by_a_few_statements(rows):
    job_id = rows.write(lambda session: imported(session, rows, MANY))
    of = {task.workload_id: task.id for task in rows.read(lambda session: Tasks(session).list(job_id))}
    seats = [FamilyMember(each, "", "", "", f"f{each % 3}", "why") for each in of]
    with listening(rows.database.engine) as heard:
        rows.write(lambda session: WorkloadFamilies(session).set_families(job_id, seats))
        rows.write(lambda session: Tasks(session).retire({task: f"why {task}" for task in of.values()}))
    assert sum(one.sql.startswith("UPDATE") for one in heard) == 4
    tasks = rows.read(lambda session: Tasks(session).list(job_id))
    assert {task.family for task in tasks if task.workload_id % 3 == 1} == {"f1"}
    assert all(task.retired == f"why {task.id}" for task in tasks)
