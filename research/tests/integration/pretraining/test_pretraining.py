"""Bases: one an operator and target, stored with what they learned from."""

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import REGISTRY, resolve
from mallorn.core.targets import parse_target
from mallorn.core.values.cost_model_version import CostModelMetrics, CostModelVersion
from mallorn.core.virtual_devices import add_virtual_device
from mallorn.costmodels.base import CostModel, Groups, Matrix, Vector
from mallorn.costmodels.lightgbm_models import LightGBM
from mallorn.db.dataset.snapshots import take_snapshot
from mallorn.db.repositories.cost_models import CostModels, CostModelVersions
from mallorn.db.repositories.snapshots import Selection
from mallorn.db.repositories.targets import Targets
from mallorn.db.session import Database
from mallorn_research.costmodels.transfer_model_base import ManyDomains
from mallorn_research.pretraining import pretrain as bases
from mallorn_research.pretraining.pretrain import PretrainedBase, pretrain
from mallorn_research.pretraining.read_measurements import read_measurements
from mallorn_research.pretraining.training_data import TaskData, TrainingData, rows_for
from research.tests.unit.pretraining.made_up import SHAPES, task_data
from tests.fixtures.database import BOTH
from tests.fixtures.filled_dataset import Filled

CPU, SMALL, LARGE = (f'{{"kind":"llvm","num-cores":{cores}}}' for cores in (2, 4, 8))
BASE = "base:matmul/lightgbm"


def taught(*tasks: TaskData) -> TrainingData:
    return TrainingData(tasks, "rows-1", upto=240)


def tasks(target: str = CPU, **changes: str) -> list[TaskData]:
    return [task_data(shape, target=target, **changes) for shape in SHAPES]


def fit(database: Database, *known: TaskData, name: str = "lightgbm") -> list[PretrainedBase]:
    return list(pretrain(database, taught(*known), name))


def versions(database: Database) -> list[CostModelVersion]:
    with database.session() as session:
        return CostModelVersions(session).page().items[::-1]


def test_every_operator_and_target_gets_a_base(database: Database) -> None:
    found = fit(database, *tasks(), *tasks(LARGE), *tasks(op="conv2d"), name="draft")
    assert [(base.op, base.target) for base in found] == [("conv2d", CPU), ("matmul", CPU), ("matmul", LARGE)]
    of_matmul = "base:matmul/draft@1"
    assert [str(base.name) for base in found] == ["base:conv2d/draft@1", of_matmul, of_matmul]
    assert [version.target for version in versions(database)] == [CPU, CPU, LARGE]


def test_a_base_is_stored_with_its_figures_of_every_split_its_snapshot_and_its_parent(
    database: Database,
) -> None:
    [base] = fit(database, *tasks())
    assert list(base.metrics.splits) == ["by-task", "within-task"]
    assert base.metrics.splits["by-task"].pairwise == base.metrics.pairwise
    fit(database, *tasks())
    first, second = versions(database)
    assert (second.version, second.parent_id, second.active, first.active) == (2, first.id, True, False)
    assert (second.snapshot, second.seen_upto, second.rows) == ("rows-1", 240, 240)
    figures = second.metrics
    assert figures.pairwise is not None
    assert figures.pairwise > 0.6
    assert (figures.split, figures.tasks, figures.training_rows) == ("by-task", 4, 240)


@BOTH
def test_a_base_orders_the_tasks_it_learned_from(database: Database) -> None:
    fit(database, *tasks())
    [stored] = versions(database)
    with database.session() as session:
        blob = CostModels(session).get(stored.id).blob
    rows = rows_for(tasks(), "decisions")
    scores = resolve("cost_model", "lightgbm").load(blob).predict(rows.features).mean
    fast, slow = rows.labels > -0.5, rows.labels < -2.0
    assert scores[fast].mean() > scores[slow].mean() + 0.5


def test_one_task_alone_is_judged_on_its_later_rows(database: Database) -> None:
    [base] = fit(database, task_data(SHAPES[0], 100, target=CPU))
    assert (base.metrics.split, base.tasks) == ("within-task", 1)
    assert list(base.metrics.splits) == ["within-task"]


def test_a_handful_of_rows_makes_no_base_and_stops_no_other(database: Database) -> None:
    few, base = fit(database, task_data(SHAPES[0], 20, target=CPU, op="a handful"), *tasks())
    assert (few.op, few.name, few.rows) == ("a handful", None, 20)
    assert [version.family for version in versions(database)] == ["base:matmul"]
    assert base.name is not None


def noise(target: str = CPU) -> list[TaskData]:
    """Tasks whose times say nothing about their candidates."""
    rng = np.random.default_rng(0)
    return [mixed(task, rng) for task in tasks(target)]


def mixed(task: TaskData, rng: np.random.Generator) -> TaskData:
    times = rng.permutation(task.latencies_us)
    dealt = zip(task.trials, times, strict=True)
    return replace(task, trials=[replace(trial, latency_us=latency_us) for trial, latency_us in dealt])


def test_a_base_that_orders_by_chance_is_stored_and_activated_by_hand_alone(database: Database) -> None:
    [base] = fit(database, *noise())
    assert base.metrics.pairwise < bases.WORTH_PAIRS
    assert not base.active
    [stored] = versions(database)
    assert not stored.active
    with database.session() as session:
        home = Targets(session).find(parse_target(CPU).key)
        assert home is not None
        assert CostModels(session).bases("matmul", home.id) == []
    with database.transaction() as session:
        assert CostModelVersions(session).activate(stored.id).active


def test_a_worse_successor_leaves_the_base_that_was_worth_it_in_its_place(database: Database) -> None:
    fit(database, *tasks())
    fit(database, *noise())
    assert [version.active for version in versions(database)] == [True, False]
    fit(database, *tasks())
    assert [version.active for version in versions(database)] == [False, False, True]


@pytest.mark.parametrize(("pairwise", "worth"), [(None, False), (0.549, False), (0.55, True), (0.9, True)])
def test_a_base_must_beat_chance_by_a_margin(pairwise: float | None, worth: bool) -> None:
    assert bases.is_worth_it(CostModelMetrics(pairwise=pairwise)) is worth


def test_progress_reaches_its_end(database: Database) -> None:
    seen: list[tuple[int, int]] = []
    list(pretrain(database, taught(*tasks(), *tasks(LARGE)), "draft", lambda *at: seen.append(at)))
    assert seen == [(0, 2), (1, 2), (2, 2)]


@BOTH
def test_what_a_snapshot_froze_is_what_a_base_learns_from(enough: Filled) -> None:
    taken = take_snapshot(enough.database, "mine", Selection())
    [base] = pretrain(enough.database, read_measurements(enough.database, "mine", Selection()), "draft")
    [stored] = versions(enough.database)
    assert (stored.snapshot, stored.seen_upto, stored.rows) == ("mine", taken.upto, 45)
    assert base.tasks == 2


def test_a_base_for_a_target_learns_from_all_targets(database: Database) -> None:
    home = parse_target(SMALL)
    [base] = pretrain(database, taught(*tasks(), *tasks(LARGE)), "lightgbm", home=home)
    assert (base.target, base.rows, base.metrics.targets) == (SMALL, 480, 2)
    assert base.metrics.split == "by-target"
    assert list(base.metrics.splits) == ["by-target", "by-task"]  # both targets have the same candidates
    [stored] = versions(database)
    assert (stored.target, str(stored.full_name)) == (SMALL, f"{BASE}@1")


def test_the_few_rows_of_its_own_target_are_all_learned_from(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "BASE_ROWS", 100)
    few = task_data(SHAPES[0], 10, target=SMALL)
    seen = bases._sample([*tasks(), few], SMALL)
    assert sum(len(task.candidates) for task in seen) == 100
    assert [len(task.candidates) for task in seen if task.target == SMALL] == [10]


class TwoHeads(LightGBM, ManyDomains):
    """Remembers whose rows it was given."""

    told: ClassVar[list[tuple[Counter[str], str]]] = []

    def fit_domains(self, features: Matrix, labels: Vector, groups: Groups, domains: Any, **how: Any) -> None:
        self.told.append((Counter(domains), how["home"]))
        self.fit(features, labels, groups, seed=how["seed"])

    @classmethod
    def from_base(cls, base: CostModel) -> Self:
        raise NotImplementedError


@pytest.mark.parametrize(("home", "answers"), [(LARGE, LARGE), (SMALL, CPU)])
def test_a_model_with_heads_is_told_whose_rows_are_whose(
    database: Database, monkeypatch: pytest.MonkeyPatch, home: str, answers: str
) -> None:
    monkeypatch.setitem(REGISTRY["cost_model"], "two-heads", f"{__name__}:TwoHeads")
    monkeypatch.setattr(TwoHeads, "told", [])
    known = taught(*tasks(), task_data(SHAPES[0], 60, target=LARGE))
    list(pretrain(database, known, "two-heads", home=parse_target(home)))
    assert TwoHeads.told == [(Counter({CPU: 240, LARGE: 60}), answers)]


def test_what_stands_on_a_base_is_none(database: Database) -> None:
    with pytest.raises(InvalidRequest, match="residual extends a pretrained base model"):
        list(pretrain(database, taught(*tasks()), "residual"))
    assert versions(database) == []


def test_rows_that_the_model_cannot_see_make_no_base(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = rows_for([task_data(SHAPES[0], 20, target=CPU)], "decisions")
    monkeypatch.setattr(bases, "rows_for", lambda *_asked: few)
    [base] = fit(database, *tasks())
    assert (base.name, versions(database)) == (None, [])


def test_what_no_device_measured_teaches_no_real_target(database: Database) -> None:
    made_up = add_virtual_device(parse_target(LARGE), "simulated")
    [base] = pretrain(database, taught(*tasks(), *tasks(made_up.text)), "draft", home=parse_target(SMALL))
    assert base.rows == 240
    [own, _] = pretrain(database, taught(*tasks(), *tasks(made_up.text)), "draft")
    assert (own.target, own.rows) == (made_up.text, 240)
