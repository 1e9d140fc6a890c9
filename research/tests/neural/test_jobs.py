"""Jobs with a base that learned several targets: it is asked first, and a refit keeps what it knows."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from mallorn.costmodels.testing import easy_data
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.tables import CostModelRow
from mallorn.searchers.space import Sketch
from mallorn.workers.round.select_cost_model import model_of
from mallorn.workers.round.train_cost_model import train
from mallorn_research.costmodels.adapted_networks import MTLTLP, MoA
from tests.fixtures.workshop import TARGET, MadeUpCompiler, Workshop

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
NAME, ELSEWHERE = "base:matmul/mtl-tlp@1", "gpu"


@pytest.fixture(scope="module")
def several() -> bytes:
    """A base of the workshop's target and another one."""
    features, labels, groups = easy_data(300, 0, "primitives")
    base, domains = MTLTLP(), [TARGET.text] * 100 + [ELSEWHERE] * 200
    base.fit_domains(features, labels, groups, domains, home=TARGET.text, seed=0)
    return base.save()


def traced(sketch: Sketch) -> Sketch:
    """The made-up sketch with instructions that its decisions fill in; the first names it."""
    names = [[f"v{at}.{part}" for part in range(choice.width)] for at, choice in enumerate(sketch.choices)]
    samples = [["SampleMadeUp", [], [], outputs] for outputs in names]
    splits = [["Split", [outputs], [], []] for outputs in names]
    return replace(sketch, trace=json.dumps([[sketch.key, [], [], []], *samples, *splits]))


@pytest.fixture
def based(workshop: Workshop, several: bytes, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A workshop with that base, whose traces the view of primitives can read."""

    def design_space(compiler: MadeUpCompiler, tir: str, target: str) -> Sequence[Sketch]:
        return [traced(sketch) for sketch in compiler.space.sketches]

    monkeypatch.setattr(MadeUpCompiler, "on_design_space", design_space)
    new = NewCostModel("base:matmul", workshop.target_id, "mtl-tlp", 0, 300, {}, several, snapshot="rows-1")
    workshop.write(lambda session: CostModels(session).add(new))
    return workshop


def refit(workshop: Workshop, name: str) -> CostModelRow:
    """What a job's first round taught its cost model, after the base proposed that round."""
    job = workshop.job(("w0",), cost_model=name)
    first = workshop.closed_round(job)
    assert first.stats.cost_model == NAME
    train(workshop, job, first.task_id)
    family = "operator:matmul", workshop.target_id, name
    stored: CostModelRow = workshop.read(lambda session: CostModels(session).latest(*family))
    assert stored.metrics["base"] == NAME
    assert workshop.closed_round(job).cost_model_id == stored.id
    return stored


def test_momentum_keeps_the_base_whole(based: Workshop, several: bytes) -> None:
    model = model_of(refit(based, "moa"))
    assert isinstance(model, MoA)
    assert model.base.save() == several
    assert model.save() != MoA.from_base(model.base).save(), "it learned from the round"


def test_a_model_with_heads_goes_on_with_all_of_them(based: Workshop, several: bytes) -> None:
    model, base = model_of(refit(based, "mtl-tlp")), MTLTLP.load(several)
    assert isinstance(model, MTLTLP)
    assert model.domains == base.domains == tuple(sorted((TARGET.text, ELSEWHERE)))
    assert model.save() != several, "it learned from the round"


def test_a_second_refit_begins_with_the_base_too(based: Workshop) -> None:
    refit(based, "mtl-tlp")
    job = based.job(("w0", "w1"), cost_model="mtl-tlp")
    for _ in range(2):
        train(based, job, based.closed_round(job).task_id)
    family = "operator:matmul", based.target_id, "mtl-tlp"
    newest = based.read(lambda session: CostModels(session).latest(*family))
    assert (newest.version > 1, newest.metrics["base"]) == (True, NAME)
