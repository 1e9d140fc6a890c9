"""A base proposes candidates for tasks that no job has measured."""

import numpy as np
import pytest

from mallorn.core.errors import Unavailable
from mallorn.core.registry import resolve
from mallorn.core.states import RoundState
from mallorn.core.targets import parse_target
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.costmodels.analytic_models import Draft
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.decision_log import DecisionLog
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.targets import Targets
from mallorn.searchers.base import searcher_of
from mallorn.workers.round.loaded_round import load_round
from mallorn.workers.round.select_cost_model import model_of
from mallorn.workers.round.train_cost_model import train
from tests.fixtures.workshop import TARGET

FAMILY = "operator:matmul"


def add_base(workshop, op="matmul", name="random", rows=100, target=TARGET):
    """An untrained base, which will do to be chosen."""
    blob = resolve("cost_model", name)().save()

    def add(session):
        target_id = Targets(session).ensure(target).id
        new = NewCostModel(f"base:{op}", target_id, name, 0, rows, {}, blob, snapshot="rows-1")
        return CostModels(session).add(new).id

    return workshop.write(add)


def active(workshop, name, family=FAMILY):
    return workshop.read(lambda session: CostModels(session).latest(family, workshop.target_id, name))


def test_the_first_round_is_proposed_by_the_base_and_says_so(workshop):
    base = add_base(workshop)
    first = workshop.closed_round(workshop.job(("w0",)))
    assert first.cost_model_id == base
    assert first.stats.cost_model == "base:matmul/random@1"
    [logged] = workshop.read(lambda session: DecisionLog(session).list(first.job_id)).items
    assert logged.cost_model == "base:matmul/random@1"


def test_a_job_that_does_not_use_the_dataset_does_not_use_bases(workshop):
    add_base(workshop)
    job = workshop.job(("w0",), dataset="off")
    workshop.work(job)
    rounds = workshop.read(lambda session: DecisionLog(session).list(job)).items
    assert rounds
    assert not any((logged.cost_model or "").startswith("base:") for logged in rounds)


def test_a_base_opens_with_the_jobs_own_searcher(workshop):
    assert opener_of(workshop, "xgboost") <= {"evolutionary"}


def opener_of(workshop, name):
    """Return the searchers of a first round whose base has this cost model."""
    add_base(workshop, name=name)
    first = workshop.closed_round(workshop.job(("w0",), search="evolutionary"))
    second = workshop.closed_round(first.job_id)
    assert searchers(workshop, second) == {"evolutionary"}
    return searchers(workshop, first)


def searchers(workshop, row):
    return {searcher_of(measured.origin) for measured in workshop.rows(round_id=row.id)}


def test_without_a_base_nothing_proposes_the_first_round(workshop):
    first = workshop.closed_round(workshop.job(("w0",)))
    assert (first.cost_model_id, first.stats.cost_model) == (None, None)


def test_bases_of_other_operators_are_not_asked(workshop):
    add_base(workshop, op="conv2d")
    assert workshop.closed_round(workshop.job(("w0",))).cost_model_id is None


def elsewhere(**changes):
    """Another target."""
    return parse_target({**TARGET.attrs, **changes})


def test_where_the_target_has_no_base_its_nearest_kin_proposes(workshop):
    near = add_base(workshop, target=elsewhere(**{"num-cores": TARGET.num_cores + 1}))
    add_base(workshop, target=elsewhere(mcpu="knl"), rows=9999)
    assert workshop.closed_round(workshop.job(("w0",))).cost_model_id == near


@pytest.mark.parametrize("stranger", [elsewhere(device="simulated"), parse_target("cuda -arch=sm_80")])
def test_what_measured_something_else_is_never_asked(workshop, stranger):
    add_base(workshop, target=stranger)
    assert workshop.closed_round(workshop.job(("w0",))).cost_model_id is None


def test_a_base_of_the_target_itself_comes_before_its_kin(workshop):
    own = add_base(workshop, rows=10)
    add_base(workshop, target=elsewhere(**{"num-cores": 64}), rows=9999)
    assert workshop.closed_round(workshop.job(("w0",))).cost_model_id == own


def test_kin_is_not_asked_where_the_family_has_learned_here(workshop):
    add_base(workshop, target=elsewhere(**{"num-cores": 64}), rows=9999)
    job = workshop.job(("w0",))
    train(workshop, job, workshop.closed_round(job).task_id)
    second = workshop.closed_round(workshop.job(("w1",)))
    assert second.stats.cost_model == "operator:matmul/random@1"


def test_a_base_serves_jobs_of_another_cost_model(workshop):
    check_base_serves(workshop, "random")


def check_base_serves(workshop, cost_model):
    base = add_base(workshop, name="draft")
    assert workshop.closed_round(workshop.job(("w0",), cost_model=cost_model)).cost_model_id == base


def test_of_several_bases_the_one_of_the_jobs_own_name_is_asked_then_the_newest(workshop):
    own, newest = add_base(workshop, name="random"), add_base(workshop, name="draft")
    asked = [
        workshop.closed_round(workshop.job((name,), cost_model=name_of)).cost_model_id
        for name, name_of in (("w0", "random"), ("w1", "xgboost"))
    ]
    assert asked == [own, newest]


def test_a_base_that_this_worker_has_no_library_for_is_passed_over(workshop, monkeypatch):
    def needs_torch(self):
        raise Unavailable("the cost model tlp needs torch, which is not installed")

    usable = add_base(workshop, name="random")
    add_base(workshop, name="draft")
    monkeypatch.setattr(resolve("cost_model", "draft"), "__init__", needs_torch)
    assert workshop.closed_round(workshop.job(("w0",), cost_model="xgboost")).cost_model_id == usable


def test_a_second_job_gets_its_first_round_from_the_base_and_its_next_from_its_family(workshop):
    base = add_base(workshop)
    job = workshop.job(("w0",))
    train(workshop, job, workshop.closed_round(job).task_id)
    second = workshop.job(("w1",))
    first = workshop.closed_round(second)
    assert (first.cost_model_id, first.seen_upto) == (base, 0)
    assert workshop.closed_round(second).stats.cost_model == "operator:matmul/random@1"


def test_a_family_that_has_learned_from_more_than_the_base_needs_none(workshop):
    add_base(workshop, rows=7)
    job = workshop.job(("w0",))
    train(workshop, job, workshop.closed_round(job).task_id)
    second = workshop.closed_round(workshop.job(("w1",)))
    assert second.stats.cost_model == "operator:matmul/random@1"


def test_a_round_keeps_the_base_it_began_with(workshop):
    base = add_base(workshop)
    first = workshop.closed_round(workshop.job(("w0",)))
    add_base(workshop)
    with workshop.database.session() as session:
        context = load_round(session, first.id)
    assert context.row.cost_model_id == base
    assert context.model_name == "base:matmul/random@1"


def test_without_a_base_a_first_round_has_the_defaults_as_ever(workshop):
    first = workshop.closed_round(workshop.job(("w0",), search="evolutionary"))
    assert sum("default" in row.origin for row in workshop.rows(round_id=first.id)) > 4


def test_a_model_that_asks_for_a_machine_is_made_for_the_jobs(workshop):
    job, machine = workshop.job(("w0",), cost_model="draft"), assume_typical_cpu(cores=2, lanes=4)
    workshop.write(lambda session: Jobs(session).bind_machine(job, machine))
    train(workshop, job, workshop.closed_round(job).task_id)
    features = workshop.space.features(workshop.space.sample(np.random.default_rng(0), 50))
    ours, others = (Draft(each).predict(features).mean for each in (machine, None))
    assert model_of(active(workshop, "draft")).predict(features).mean.tolist() == ours.tolist()
    assert ours.tolist() != others.tolist()


def test_a_base_that_was_cut_short_is_left_out_and_the_job_says_why(workshop):
    blob = resolve("cost_model", "lightgbm")().save()
    new = NewCostModel(
        "base:matmul", workshop.target_id, "lightgbm", 0, 100, {}, blob[:-9], snapshot="rows-1"
    )
    workshop.write(lambda session: CostModels(session).add(new))
    job = workshop.job(("w0",), cost_model="lightgbm")
    first = workshop.closed_round(job)
    assert first.state == RoundState.DONE
    [warning] = workshop.read(lambda session: Jobs(session).get(job, None).warnings)
    assert "model bytes cannot be read" in warning.message
    assert "fit the model again" in warning.message + warning.hint
