"""When a cost model is refit, and that it learns from the very rows it will be asked about."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sqlalchemy import select

from mallorn.core.errors import Unavailable
from mallorn.core.outcomes import Outcome
from mallorn.core.states import StageKind
from mallorn.costmodels.base import FAILED_LABEL, LATE_LABEL
from mallorn.costmodels.random import RandomModel
from mallorn.db.repositories.cost_models import CostModels
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.trials import Trials
from mallorn.db.tables import StageRun
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.round import train_cost_model
from mallorn.workers.round.feature_lookup import FeatureLookup
from mallorn.workers.round.loaded_round import load_round
from mallorn.workers.round.propose import propose
from mallorn.workers.round.train_cost_model import FIRST_ROWS, train

FAMILY = "operator:matmul"


@pytest.fixture
def seen(monkeypatch):
    """What the model is taught: features and labels of each fit."""
    training_data = []

    def fit(self, features, labels, groups, *, seed):
        training_data.append((features, labels, groups))
        self._seed = seed

    monkeypatch.setattr(RandomModel, "fit", fit)
    return training_data


def versions(workshop):
    head = workshop.read(lambda session: CostModels(session).head(FAMILY, workshop.target_id, "random"))
    return head.version if head else 0


def test_a_model_is_refit_only_when_its_data_has_grown(workshop):
    job = workshop.job(("w0",), trials=400, policy="round-robin")
    task = workshop.closed_round(job).task_id
    train(workshop, job, task)
    train(workshop, job, task)
    assert versions(workshop) == 1
    runs = workshop.read(lambda session: session.scalars(select(StageRun)).all())
    assert [(run.job_id, run.kind) for run in runs] == [(job, StageKind.TRAIN)], "one was not due"
    history = []
    for _ in range(8):
        workshop.closed_round(job)
        train(workshop, job, task)
        history.append(versions(workshop))
    assert history[0] == 2, "8 rows more than 8"
    assert history[-1] < 9, "8 rows more than 64 are not a fifth"


def test_a_handful_of_rows_is_not_worth_a_model(workshop):
    job = workshop.job(("w0",), round_size=FIRST_ROWS - 1)
    train(workshop, job, workshop.closed_round(job).task_id)
    assert versions(workshop) == 0


def test_training_sees_the_features_that_proposing_asks_about(workshop, seen):
    job = workshop.job(("w0",))
    done = workshop.closed_round(job)
    train(workshop, job, done.task_id)
    with workshop.database.session() as session:
        context = load_round(session, done.id)
    slots, *_ = propose(FeatureLookup(workshop.database, workshop.compiler), context)
    sketches = workshop.compiler.design_space(context.program.tir, context.target.text)
    space = TvmSpace(sketches, context.program, context.target, context.descriptors, workshop.compiler)
    asked = space.features([slot.candidate for slot in slots])
    np.testing.assert_array_equal(seen[0][0], asked)


def test_workloads_of_a_family_teach_one_model_and_are_compared_each_with_itself(workshop, seen):
    job = workshop.job(("w0", "w1"))
    closed = [workshop.run(round_id) for round_id in workshop.plan_rounds(job)]
    assert len({end.task_id for end in closed}) == 2
    train(workshop, job, closed[0].task_id)
    features, labels, groups = seen[0]
    assert len(features) == 16
    assert sorted(np.unique(groups, return_counts=True)[1]) == [8, 8]
    assert all(labels[groups == group].max() == 0 for group in set(groups)), (
        "each group has a best of its own"
    )


def test_of_many_rows_only_the_chosen_are_read_as_a_whole(workshop, seen, monkeypatch):
    read = []
    whole = Trials.by_ids
    monkeypatch.setattr(Trials, "by_ids", lambda self, ids: read.append(ids) or whole(self, ids))
    monkeypatch.setattr(train_cost_model, "MAX_ROWS", 9)
    job = workshop.job(("w0",), trials=64)
    done = [workshop.closed_round(job) for _ in range(2)]
    train(workshop, job, done[0].task_id)
    [ids] = read
    features, labels, _ = seen[0]
    assert len(ids) == len(features) == 9
    rows = workshop.rows(kind="trial")
    assert set(ids) >= {row.id for row in rows[-3:]}, "the newest third is among them"
    best = min(rows, key=lambda row: row.latency_us)
    assert best.id in ids
    assert labels[ids.index(best.id)] == 0
    head = workshop.read(lambda session: CostModels(session).head(FAMILY, workshop.target_id, "random"))
    assert (head.rows, head.seen_upto) == (16, rows[-1].id)


def test_failures_are_taught_too(workshop, seen):
    workshop.bench.outcomes = {0: Outcome.RUN_ERROR}
    job = workshop.job(("w0",), round_size=FIRST_ROWS + 1)
    train(workshop, job, workshop.closed_round(job).task_id)
    labels = seen[0][1]
    assert len(labels) == FIRST_ROWS + 1
    assert labels.argmin() == 0


@pytest.mark.parametrize("outcome", [Outcome.BUILD_ERROR, Outcome.RUN_TIMEOUT, Outcome.WORKER_LOST])
def test_fewer_than_eight_times_are_not_worth_a_model_however_many_rows(workshop, outcome):
    workshop.bench.outcomes = dict.fromkeys(range(FIRST_ROWS - 1, 64), outcome)
    job = workshop.job(("w0",), round_size=2 * FIRST_ROWS, trials=400)
    task = workshop.closed_round(job).task_id
    train(workshop, job, task)
    assert versions(workshop) == 0
    workshop.bench.outcomes = {}
    workshop.closed_round(job)
    train(workshop, job, task)
    assert versions(workshop) == 1


def test_runs_that_were_cut_off_are_taught_as_late(workshop, seen):
    workshop.bench.outcomes = {0: Outcome.RUN_TIMEOUT, 1: Outcome.BUILD_ERROR}
    job = workshop.job(("w0",), round_size=2 * FIRST_ROWS)
    train(workshop, job, workshop.closed_round(job).task_id)
    labels = seen[0][1]
    assert labels[:2].tolist() == [LATE_LABEL, FAILED_LABEL]
    assert labels[2:].min() > LATE_LABEL


def test_the_next_round_is_proposed_by_the_model_that_saw_this_one(workshop):
    job = workshop.job(("w0",), search="evolutionary")
    train(workshop, job, workshop.closed_round(job).task_id)
    following = workshop.closed_round(job)
    head = workshop.read(lambda session: CostModels(session).head(FAMILY, workshop.target_id, "random"))
    assert following.cost_model_id == head.id


def test_trainers_that_race_leave_versions_in_order(workshop):
    job = workshop.job(("w0",))
    task = workshop.closed_round(job).task_id
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: train(workshop, job, task), range(3)))
    assert 1 <= versions(workshop) <= 3


def test_a_job_is_told_of_a_refit_that_the_database_was_too_slow_for(workshop, monkeypatch):
    job = workshop.job(("w0",), policy="round-robin")
    task = workshop.closed_round(job).task_id

    def cut(*_words):
        raise Unavailable("the database does not answer: canceling statement due to statement timeout")

    monkeypatch.setattr(Trials, "read_family_columns", cut)
    train(workshop, job, task)
    told = workshop.read(lambda session: Jobs(session).get(job, None).warnings)
    assert any("statement timeout" in warning.message for warning in told), told
