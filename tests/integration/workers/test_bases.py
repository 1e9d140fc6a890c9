"""A new job's first round is proposed by the base of its operator, and says so."""

from db.repositories.cost_models import CostModels, NewCostModel
from db.repositories.decisions import Decisions
from mallorn.core.names import resolve
from workers.round_context import load_round
from workers.training import train


def add_base(workshop, op="matmul", name="random"):
    """An untrained base, which will do to be chosen."""
    blob = resolve("cost_model", name)().save()
    new = NewCostModel(f"base:{op}", workshop.target_id, name, 0, 100, {}, blob, snapshot="rows-1")
    return workshop.write(lambda session: CostModels(session).add(new).id)


def a_round(workshop, job):
    round_id = workshop.next_round(job)
    workshop.run(round_id)
    return workshop.round(round_id)


def test_the_first_round_is_proposed_by_the_base_and_says_so(workshop):
    base = add_base(workshop)
    first = a_round(workshop, workshop.job(("w0",)))
    assert first.cost_model_id == base
    assert first.stats["cost_model"] == "base:matmul/random@1"
    [logged] = workshop.read(lambda session: Decisions(session).list(first.job_id)).items
    assert str(logged.cost_model) == "base:matmul/random@1"


def test_without_a_base_nothing_proposes_the_first_round(workshop):
    first = a_round(workshop, workshop.job(("w0",)))
    assert (first.cost_model_id, first.stats["cost_model"]) == (None, None)


def test_bases_of_other_operators_and_other_models_are_not_asked(workshop):
    add_base(workshop, op="conv2d")
    add_base(workshop, name="draft")
    assert a_round(workshop, workshop.job(("w0",))).cost_model_id is None


def test_a_family_with_a_model_of_its_own_needs_no_base(workshop):
    base = add_base(workshop)
    job = workshop.job(("w0",))
    first = a_round(workshop, job)
    train(workshop, job, first.task_id)
    second = a_round(workshop, job)
    assert first.cost_model_id == base
    assert second.stats["cost_model"] == "operator:matmul/random@1"


def test_a_round_keeps_the_base_it_began_with(workshop):
    base = add_base(workshop)
    first = a_round(workshop, workshop.job(("w0",)))
    add_base(workshop)
    with workshop.database.session() as session:
        context = load_round(session, first.id)
    assert context.row.cost_model_id == base
    assert context.model_name == "base:matmul/random@1"
