"""Models that stand on a base stand on the active one, and some bases open with their own searcher."""

import pytest

from mallorn.core.registry import resolve
from mallorn.db.repositories.cost_models import CostModelVersions
from mallorn.workers.round.select_cost_model import model_of
from mallorn.workers.round.train_cost_model import train
from mallorn_research.costmodels.residual import Residual
from mallorn_research.pretraining.pretrain import pretrain
from mallorn_research.pretraining.training_data import TrainingData
from research.tests.unit.pretraining.made_up import SHAPES, task_data
from tests.fixtures.workshop import TARGET
from tests.integration.workers.test_bases import active, check_base_serves, opener_of


@pytest.mark.parametrize(("name", "opener"), [("generator", "generator"), ("value", "beam")])
def test_a_base_that_can_do_more_than_score_opens_with_the_searcher_that_asks_it(workshop, name, opener):
    assert opener_of(workshop, name) - {"evolutionary"} == {opener}


@pytest.mark.parametrize("cost_model", ["forest", "residual"])
def test_a_base_serves_jobs_of_any_cost_model(workshop, cost_model):
    check_base_serves(workshop, cost_model)


@pytest.fixture
def learned(workshop):
    """A base of xgboost that has learned four products of the workshop's target."""
    tasks = [task_data(shape, target=TARGET.text) for shape in SHAPES]
    [base] = pretrain(workshop.database, TrainingData(tasks, "made-up"), "xgboost")
    return str(base.name)


def test_residuals_stand_on_the_active_base_and_their_version_says_on_which(workshop, learned):
    job = workshop.job(("w0",), cost_model="residual")
    first = workshop.closed_round(job)
    assert first.stats.cost_model == learned
    train(workshop, job, first.task_id)
    stored = active(workshop, "residual")
    assert stored.metrics["base"] == learned == "base:matmul/xgboost@1"
    model = model_of(stored)
    assert isinstance(model, Residual)
    assert model.base.save() == active(workshop, "xgboost", "base:matmul").blob
    assert workshop.closed_round(job).cost_model_id == stored.id


@pytest.mark.parametrize("search", ["evolutionary", "portfolio", "random"])
def test_half_of_a_first_round_are_first_guesses_and_half_what_the_base_likes(workshop, learned, search):
    first = workshop.closed_round(workshop.job(("w0",), search=search))
    assert first.stats.cost_model == learned
    by_default = ["default" in row.origin for row in workshop.rows(round_id=first.id)]
    assert by_default == [True] * 4 + [False] * 4


def test_a_model_that_stands_on_a_base_proposes_for_new_tasks_itself(workshop, learned):
    job = workshop.job(("w0",), cost_model="residual")
    train(workshop, job, workshop.closed_round(job).task_id)
    second = workshop.closed_round(workshop.job(("w1",), cost_model="residual"))
    assert second.stats.cost_model == "operator:matmul/residual@1"


def test_a_refit_stands_on_what_a_roll_back_made_active(workshop, learned):
    tasks = [task_data(shape, target=TARGET.text) for shape in SHAPES[:2]]
    list(pretrain(workshop.database, TrainingData(tasks, "fewer"), "xgboost"))
    first_version = workshop.read(lambda session: CostModelVersions(session).page(version=1).items[0].id)
    workshop.write(lambda session: CostModelVersions(session).activate(first_version))
    job = workshop.job(("w0",), cost_model="residual")
    train(workshop, job, workshop.closed_round(job).task_id)
    assert active(workshop, "residual").metrics["base"] == learned


def test_without_a_base_residuals_stand_on_the_draft_and_name_none(workshop):
    job = workshop.job(("w0",), cost_model="residual")
    train(workshop, job, workshop.closed_round(job).task_id)
    stored = active(workshop, "residual")
    assert "base" not in stored.metrics
    assert type(model_of(stored).base) is resolve("cost_model", "draft")
