"""What a round notes about how models ordered its batch."""

from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.db.repositories.tasks import Tasks
from mallorn.workers.round import ranking_evidence
from mallorn.workers.round.round_context import load_round
from mallorn.workers.round.train_cost_model import train

SEARCHED = {"search": "evolutionary", "trials": 400}


def a_ranked_round(workshop, **options):
    """The first round of a job whose family has a model."""
    job = workshop.job(("w0",), **SEARCHED | options)
    train(workshop, job, workshop.closed_round(job).task_id)
    return workshop.closed_round(job)


def test_the_first_round_of_a_family_has_no_model_to_judge(workshop):
    job = workshop.job(("w0",), **SEARCHED)
    assert workshop.closed_round(job).stats.own_accuracy is None


def test_a_round_notes_the_share_of_pairs_that_its_own_model_had_in_order(workshop):
    done = a_ranked_round(workshop)
    rows = [row for row in workshop.rows(round_id=done.id) if row.outcome == Outcome.OK]
    pairs = [(one, two) for one in rows for two in rows if one.latency_us < two.latency_us * 0.999]
    right = sum(
        (one.predicted > two.predicted) + 0.5 * (one.predicted == two.predicted) for one, two in pairs
    )
    assert done.stats.own_accuracy == pytest.approx(right / len(pairs), abs=1e-3)
    assert done.stats.other_accuracies == {}, "only a grouping that revises itself asks for more"


def test_a_few_valid_results_are_no_evidence(workshop):
    job = workshop.job(("w0",), **SEARCHED)
    train(workshop, job, workshop.closed_round(job).task_id)
    workshop.bench.outcomes = dict.fromkeys(range(ranking_evidence.FEWEST - 1, 64), Outcome.RUN_ERROR)
    assert workshop.closed_round(job).stats.own_accuracy is None


def test_equal_times_are_no_evidence(workshop):
    workshop.bench.times = lambda latency_us: 5.0
    assert a_ranked_round(workshop).stats.own_accuracy is None


def test_models_of_the_jobs_other_families_are_asked_about_a_batch(workshop):
    job = workshop.job(("w0", "w1"), **SEARCHED, families="dynamic")
    first = [workshop.round(int(message[1])) for message in workshop.plan(job)]
    tasks = workshop.read(lambda session: {t.id: t.name for t in Tasks(session).list(job)})
    set_families(workshop, job, {"w0": "dynamic:matmul", "w1": "dynamic:other"})
    for row in first:
        workshop.run(row.id)
        train(workshop, job, row.task_id)
    done = workshop.closed_round(job)
    other = {"w0": "dynamic:other", "w1": "dynamic:matmul"}[tasks[done.task_id]]
    assert list(done.stats.other_accuracies) == [other]
    assert 0 <= done.stats.other_accuracies[other] <= 1


def test_with_many_families_each_has_its_turn(workshop, monkeypatch):
    names = [f"w{at}" for at in range(8)]
    job = workshop.job(names, **SEARCHED, families="dynamic")
    round_id = workshop.next_round(job)
    set_families(workshop, job, {name: f"dynamic:{name}" for name in names})
    with workshop.database.session() as session:
        context = load_round(session, round_id)
        row = {"job_id": job, "task_id": context.row.task_id, "target_id": context.row.target_id}
        rounds = [SimpleNamespace(index=at, **row) for at in range(3)]
        asked = [families_asked(monkeypatch, session, replace(context, row=row)) for row in rounds]
    assert [len(families) for families in asked] == [ranking_evidence.MOST_OTHERS] * 3
    others = {f"dynamic:{name}" for name in names} - {f"dynamic:{context.task_name}"}
    assert set(chain(*asked)) == others


def families_asked(monkeypatch, session, context):
    """The families whose newest models a round asks for."""
    families = []
    latest = SimpleNamespace(latest=lambda family, *_: families.append(family))
    monkeypatch.setattr(ranking_evidence, "CostModels", lambda _: latest)
    ranking_evidence._models_of_other_families(session, context)
    return families


def set_families(workshop, job, families):
    def write(session):
        for task in Tasks(session).list(job):
            task.family = families[task.name]

    workshop.write(write)
