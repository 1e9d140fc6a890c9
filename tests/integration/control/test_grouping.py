"""Families of a job's tasks: given once, shared by the jobs of a target, followed by the models."""

import pytest

from mallorn.core import queues
from mallorn.core.cost_model_name import private_family_prefix
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import parse_target
from mallorn.core.values.decision_log import PlannedRound
from mallorn.db.repositories.cost_models import CostModels
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.workloads import NewWorkload, Workloads
from mallorn.services.control.plan_job import group_into_families
from mallorn.workers.round.train_cost_model import train
from tests.fixtures.database import BOTH

MATMUL, SPLIT = "dynamic:matmul", "dynamic:matmul/ssssssss"


@pytest.fixture
def job(workshop):
    """Three matrix products, two of one structure."""
    return a_job(workshop)


def a_job(workshop, structures=("s", "s", "t"), **options):
    rows = [
        NewWorkload(
            f"w{at}", f"fused_w{at}", "matmul", shape * 16, 1e6, "{}", {"args": []}, {"extents": [64]}, "0"
        )
        for at, shape in enumerate(structures)
    ]
    workshop.write(lambda session: Workloads(session).ensure_many(rows))
    names = [row.key for row in rows]
    return workshop.job(names, trials=4000, **{"families": "dynamic", "search": "evolutionary"} | options)


def regroup(workshop, job_id):
    def action(session):
        row = FairShares(session).job_to_plan(job_id)
        return group_into_families(session, row, JobOptions.model_validate(row.job.options))

    return workshop.write(action)


def tasks_of(workshop, job_id):
    return {task.name: task for task in workshop.read(lambda session: Tasks(session).list(job_id))}


def families_of(workshop, job_id):
    return [task.family for task in tasks_of(workshop, job_id).values()]


def open_round(workshop, job_id, name):
    task = tasks_of(workshop, job_id)[name]

    def add(session):
        index = FairShares(session).job_to_plan(job_id).next_index
        planned = PlannedRound(task.id, index, 8, index)
        return Rounds(session).add(Jobs(session).get(job_id, None), task.workload_id, planned, "random").id

    return workshop.write(add)


def close_round(workshop, round_id, own=None):
    """As its worker ends it, with the shares of pairs in order that a test wants."""
    closed = workshop.run(round_id)
    train(workshop, closed.job_id, closed.task_id)

    def note(session):
        row = Rounds(session).get(round_id)
        row.stats = row.stats.model_copy(update={"own_accuracy": own})

    workshop.write(note)


def run_rounds(workshop, job_id, name, *shares):
    for share in shares:
        close_round(workshop, open_round(workshop, job_id, name), share)


def with_models(workshop, job_id):
    """The job with one round a task behind it, so that all that follow have a model."""
    regroup(workshop, job_id)
    for name in tasks_of(workshop, job_id):
        run_rounds(workshop, job_id, name, None)
    return job_id


def split(workshop, job_id):
    """w0 ranked badly twice, w2 well."""
    with_models(workshop, job_id)
    run_rounds(workshop, job_id, "w2", 0.8)
    run_rounds(workshop, job_id, "w0", 0.5, 0.4)
    return regroup(workshop, job_id)


def head(workshop, family):
    return workshop.read(lambda session: CostModels(session).head(family, workshop.target_id, "random"))


def test_new_tasks_get_a_family_and_the_reason(workshop, job):
    assert regroup(workshop, job) == []
    assert families_of(workshop, job) == [MATMUL] * 3
    assert {task.family_why for task in tasks_of(workshop, job).values()} == {
        "starts the family of the operator matmul"
    }


def test_private_jobs_share_families_with_those_of_their_owner_alone(workshop, job):
    with_models(workshop, job)
    scope = private_family_prefix("ada")
    hidden = with_models(workshop, a_job(workshop, private=True))
    assert families_of(workshop, hidden) == [f"{scope}{MATMUL}"] * 3
    assert head(workshop, f"{scope}{MATMUL}").rows > 0
    before = head(workshop, MATMUL)
    train(workshop, hidden, tasks_of(workshop, hidden)["w0"].id)
    assert head(workshop, MATMUL) == before
    again = a_job(workshop)
    regroup(workshop, again)
    assert families_of(workshop, again) == [MATMUL] * 3


@pytest.mark.parametrize("dataset", ["read", "off"])
def test_a_job_that_does_not_write_to_the_dataset_has_families_of_its_own(workshop, job, dataset):
    with_models(workshop, job)
    before = head(workshop, MATMUL)
    first, second = (with_models(workshop, a_job(workshop, dataset=dataset)) for _ in range(2))
    for withheld in (first, second):
        family = f"{private_family_prefix(withheld)}{MATMUL}"
        assert families_of(workshop, withheld) == [family] * 3
        assert head(workshop, family).rows > 0
    assert head(workshop, MATMUL) == before
    train(workshop, job, tasks_of(workshop, job)["w0"].id)
    assert head(workshop, MATMUL) == before


def test_private_families_split_by_their_own_evidence(workshop):
    hidden = a_job(workshop, private=True)
    split(workshop, hidden)
    scope = private_family_prefix("ada")
    assert families_of(workshop, hidden) == [f"{scope}{SPLIT}", f"{scope}{MATMUL}", f"{scope}{MATMUL}"]


@BOTH
def test_a_fixed_grouping_is_asked_once(workshop):
    job = a_job(workshop, families="structure")
    regroup(workshop, job)
    assert families_of(workshop, job) == [f"structure:{'s' * 16}"] * 2 + [f"structure:{'t' * 16}"]
    run_rounds(workshop, job, "w0", 0.1, 0.1, 0.1)
    assert regroup(workshop, job) == []
    assert families_of(workshop, job) == [f"structure:{'s' * 16}"] * 2 + [f"structure:{'t' * 16}"]


def test_a_member_that_is_ranked_badly_twice_is_split_off_and_the_job_hears_why(workshop, job):
    messages = split(workshop, job)
    moved = tasks_of(workshop, job)["w0"]
    assert families_of(workshop, job) == [SPLIT, MATMUL, MATMUL]
    assert messages == [(queues.TRAIN_COST_MODEL, job, moved.id)]
    (event,) = [e for e in workshop.read(lambda s: Events(s).after(job, 0)) if e.kind == "family_changed"]
    assert (event.payload["from"], event.payload["to"], event.payload["reason"]) == (
        MATMUL,
        SPLIT,
        moved.family_why,
    )
    assert "0.50 and 0.40" in moved.family_why
    assert regroup(workshop, job) == [], "the same evidence is judged once"


def test_after_a_split_each_family_is_trained_from_its_members_rows(workshop, job):
    ((_, _, task_id),) = split(workshop, job)
    train(workshop, job, task_id)
    assert head(workshop, SPLIT).rows == 24, "three rounds of w0"
    train(workshop, job, tasks_of(workshop, job)["w1"].id)
    assert head(workshop, MATMUL).rows == 24, "one round of w1 and two of w2"


def test_the_next_round_of_a_split_member_uses_its_new_model(workshop, job):
    ((_, _, task_id),) = split(workshop, job)
    train(workshop, job, task_id)
    round_id = open_round(workshop, job, "w0")
    workshop.run(round_id)
    assert workshop.round(round_id).cost_model_id == head(workshop, SPLIT).id


def test_a_round_in_flight_keeps_its_model_when_its_task_changes_family(workshop, job):
    with_models(workshop, job)
    run_rounds(workshop, job, "w2", 0.8)
    run_rounds(workshop, job, "w0", 0.5, 0.4)
    round_id = open_round(workshop, job, "w0")
    old = head(workshop, MATMUL).id
    workshop.bench.before = lambda slot: slot.slot or regroup(workshop, job)
    workshop.run(round_id)
    done = workshop.round(round_id)
    assert tasks_of(workshop, job)["w0"].family == SPLIT
    assert (done.state, done.cost_model_id) == ("done", old)
    assert len(workshop.rows(round_id=round_id)) == 8


def test_families_hold_across_jobs(workshop, job):
    twin = a_job(workshop)
    regroup(workshop, twin)
    split(workshop, job)
    assert families_of(workshop, twin) == [SPLIT, MATMUL, MATMUL], "a move counts for every job"
    later = a_job(workshop, ("s", "s", "t", "t"))
    regroup(workshop, later)
    assert families_of(workshop, later) == [SPLIT, MATMUL, MATMUL, MATMUL]
    assert tasks_of(workshop, later)["w0"].family_why == tasks_of(workshop, job)["w0"].family_why


def test_another_target_has_families_of_its_own(workshop, job):
    here = workshop.target_id
    workshop.target_id = workshop.write(
        lambda session: Targets(session).ensure(parse_target('{"kind":"llvm","num-cores":1}')).id
    )
    elsewhere = a_job(workshop)
    regroup(workshop, elsewhere)
    workshop.target_id = here
    split(workshop, job)
    assert families_of(workshop, elsewhere) == [MATMUL] * 3
    train(workshop, job, tasks_of(workshop, job)["w1"].id)
    assert head(workshop, MATMUL).rows == 24, "w0 is in this family on the other target alone"
