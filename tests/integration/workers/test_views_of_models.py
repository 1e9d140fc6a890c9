"""A stored cost model proposes only while its view means what it meant when the model learned it."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from mallorn.core.registry import list_runnable_cost_models
from mallorn.core.states import RoundState
from mallorn.core.values.graph_report import GraphReport
from mallorn.costmodels.views import DECISIONS, VIEWS
from mallorn.db.bundled.load_bundled import FOLDER, read_bases_list
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.tables import Job
from mallorn.workers.host import code_digest
from mallorn.workers.round.loaded_round import load_round
from mallorn.workers.round.select_cost_model import current_feature_view, reads_current_view
from mallorn.workers.round.train_cost_model import train
from tests.integration.workers.test_bases import active, add_base
from tests.integration.workers.test_lowered_models import lowered

__all__ = ["lowered"]  # a fixture


def trained(workshop, cost_model="random"):
    """A job whose family has a model."""
    job = workshop.job(("w0",), trials=400, cost_model=cost_model)
    train(workshop, job, workshop.closed_round(job).task_id)
    return job


@pytest.fixture
def next_view(monkeypatch):
    """The view of decisions has another version from when this is called."""
    return lambda: monkeypatch.setitem(VIEWS, "decisions", replace(DECISIONS, version=DECISIONS.version + 1))


@pytest.fixture
def next_code(monkeypatch):
    return lambda: monkeypatch.setattr(code_digest, "code_parts", lambda: {"graphc": "another"})


def test_a_model_names_its_view_and_of_a_lowered_one_the_builder(workshop, lowered):
    trained(workshop)
    assert active(workshop, "random").metrics["view"] == "decisions/1"
    trained(workshop, "lowered")
    assert active(workshop, "lowered").metrics["view"] == f"statements/1 {code_digest.current_code_name()}"


def test_a_model_of_an_earlier_view_proposes_nothing_and_is_refitted_from_the_same_rows(workshop, next_view):
    job = trained(workshop)
    first = active(workshop, "random")
    assert workshop.closed_round(job).cost_model_id == first.id
    next_view()
    last = workshop.closed_round(job)
    assert last.cost_model_id is None
    train(workshop, job, last.task_id)
    assert active(workshop, "random").metrics["view"] == "decisions/2"
    assert active(workshop, "random").version == first.version + 1
    assert workshop.closed_round(job).cost_model_id == active(workshop, "random").id


def test_a_model_of_code_that_another_builder_generated_proposes_nothing(workshop, lowered, next_code):
    on_code, on_decisions = trained(workshop, "lowered"), trained(workshop)
    assert workshop.closed_round(on_code).cost_model_id == active(workshop, "lowered").id
    next_code()
    set_code = {"graph": GraphReport(code=code_digest.code_digest())}  # as if they were imported anew
    workshop.write(lambda session: session.execute(update(Job).values(set_code)))
    assert workshop.closed_round(on_code).cost_model_id is None
    assert workshop.closed_round(on_decisions).cost_model_id == active(workshop, "random").id


def test_a_round_that_other_code_began_goes_on_without_the_model_it_settled(workshop, next_view):
    job = trained(workshop)
    round_id = workshop.next_round(job)
    model = active(workshop, "random").id
    workshop.write(lambda session: Rounds(session).store_inputs(round_id, model))
    assert workshop.read(lambda session: load_round(session, round_id)).model is not None
    next_view()
    assert workshop.read(lambda session: load_round(session, round_id)).model is None
    assert workshop.round(round_id).state == RoundState.QUEUED


def test_a_base_of_an_earlier_view_is_passed_over(workshop, next_view):
    base = add_base(workshop)
    assert workshop.closed_round(workshop.job(("w0",))).cost_model_id == base
    next_view()
    assert workshop.closed_round(workshop.job(("w1",))).cost_model_id is None


def test_models_of_before_are_used_where_their_view_needs_no_compiler():
    for name in list_runnable_cost_models():
        view = VIEWS[current_feature_view(name).partition("/")[0]]
        assert reads_current_view(name, "") is not view.lowered, name


def test_what_is_bundled_is_used():
    listed = read_bases_list(FOLDER)
    assert listed is not None
    assert all(reads_current_view(base.name, str(base.metrics.get("view", ""))) for base in listed.bases)
