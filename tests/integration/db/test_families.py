"""Where workloads are placed, read and written so that all jobs of a target agree."""

from dataclasses import replace

import pytest

from mallorn.core.states import RoundState
from mallorn.core.targets import parse_target
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.workload_families import RANKED_ROUNDS, WorkloadFamilies
from mallorn.db.repositories.workloads import Workloads
from tests.fixtures.rows import Rows, new_job, new_workload

A, B = "dynamic:a", "dynamic:b"


@pytest.fixture
def rows(database):
    return Rows(database)


def a_job(rows, families, target_id=None, ops=None):
    """A job with a task for each of the workloads, placed as told."""

    def write(session):
        job_id = Jobs(session).create(new_job(target_id=target_id or rows.target_id))[0].id
        known = Workloads(session).ensure_many(
            [new_workload(name, (ops or {}).get(name, "matmul")) for name in families]
        )
        rows.workloads |= known
        tasks = [NewTask(at, name, 1, known[name], families[name]) for at, name in enumerate(families)]
        Tasks(session).add_many(job_id, tasks)
        return job_id

    return rows.write(write)


def seats_of(rows, job_id, grouping="dynamic"):
    found = rows.read(lambda session: WorkloadFamilies(session).members(job_id, rows.target_id, grouping))
    return {seat.key: seat for seat in found}


def families_of(rows, job_id):
    return [task.family for task in rows.read(lambda session: Tasks(session).list(job_id))]


def test_new_workloads_have_no_seat_and_known_ones_have_that_of_the_dataset(rows):
    a_job(rows, {"w0": A})
    job = a_job(rows, {"w0": "", "w2": ""})
    assert rows.read(lambda session: WorkloadFamilies(session).workloads_without_family(job)) == {
        rows.workloads[w] for w in ("w0", "w2")
    }
    assert {key: seat.family for key, seat in seats_of(rows, job).items()} == {"w0": A, "w2": ""}


def test_the_places_of_another_grouping_are_not_seen(rows):
    a_job(rows, {"w0": "operator:matmul"})
    job = a_job(rows, {"w0": ""})
    assert seats_of(rows, job)["w0"].family == ""
    assert seats_of(rows, job, "operator")["w0"].family == "operator:matmul"


def test_workloads_of_the_same_operator_or_family_are_seen_and_no_others(rows):
    a_job(rows, {"same op": A, "same family": B, "else": "dynamic:c"}, ops={"same family": "x", "else": "y"})
    job = a_job(rows, {"w0": "", "w1": B})
    assert set(seats_of(rows, job)) == {"w0", "w1", "same op", "same family"}


def test_seats_are_given_to_new_tasks_only(rows):
    job = a_job(rows, {"w0": "", "w1": B})
    seats = [replace(seat, family=A, why="so", since=7) for seat in seats_of(rows, job).values()]
    rows.write(lambda session: WorkloadFamilies(session).set_families(job, seats))
    assert families_of(rows, job) == [A, B]
    assert seats_of(rows, job)["w0"] == replace(seats[0], workload_id=rows.workloads["w0"], key="w0")
    assert rows.read(lambda session: WorkloadFamilies(session).workloads_without_family(job)) == set()


def test_a_move_counts_for_all_jobs_of_the_target_that_agree(rows):
    elsewhere = rows.write(
        lambda session: Targets(session).ensure(parse_target('{"kind":"cuda","arch":"sm_80"}')).id
    )
    one, two = a_job(rows, {"w0": A, "w1": A}), a_job(rows, {"w0": A})
    other = a_job(rows, {"w0": "operator:matmul"})
    far = a_job(rows, {"w0": A}, target_id=elsewhere)
    old = seats_of(rows, one)["w0"]
    rows.write(lambda session: WorkloadFamilies(session).move(rows.target_id, old, replace(old, family=B)))
    assert [families_of(rows, job) for job in (one, two, other, far)] == [
        [B, A],
        [B],
        ["operator:matmul"],
        [A],
    ]


def test_ranked_rounds_are_the_newest_that_a_model_proposed(rows):
    new = NewCostModel(A, rows.target_id, "xgboost", 0, 0, {}, b"")
    model_id = rows.write(lambda session: CostModels(session).add(new).id)
    made = [a_round(rows, model_id) for _ in range(RANKED_ROUNDS + 1)]
    a_round(rows, None)
    rows.write(lambda session: rows.add_round(session, "w0"))
    places = [rows.workloads[name] for name in ("w0", "w1")]
    found = rows.read(lambda session: WorkloadFamilies(session).list_ranked_rounds(places, rows.target_id))
    assert list(found) == [rows.workloads["w0"]]
    assert [row.id for row in found[rows.workloads["w0"]]] == made[2:], "the one without a model is newest"
    assert {(row.family, row.stats.own_accuracy) for row in found[rows.workloads["w0"]]} == {(A, 0.5)}


def a_round(rows, model_id):
    round_id, hold = rows.claimed_round()
    rows.write(lambda session: Rounds(session).store_inputs(round_id, model_id))
    done = RoundState.DONE, {"own_accuracy": 0.5}
    rows.write(lambda session: Rounds(session).close(hold, *done))
    return round_id
