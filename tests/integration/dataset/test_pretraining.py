"""Bases: one an operator and target, stored with what they learned from."""

from db.dataset.selection import Selection
from db.dataset.snapshots import take_snapshot
from db.repositories.cost_models import CostModels
from db.repositories.model_versions import ModelVersion, ModelVersions
from db.session import Database
from mallorn.core.names import resolve
from tests.integration.dataset.conftest import Filled
from tests.unit.lessons.made_up import SHAPES, lesson
from workers.lessons.from_database import lessons_of
from workers.lessons.lesson import Lesson, Lessons
from workers.lessons.pretraining import Base, pretrain
from workers.lessons.views import rows_for

CPU, LARGE = '{"kind":"llvm","num-cores":2}', '{"kind":"llvm","num-cores":8}'
BASE = "base:matmul/lightgbm"


def taught(*tasks: Lesson) -> Lessons:
    return Lessons(tasks, "rows-1", upto=240)


def tasks(target: str = CPU, **changes: str) -> list[Lesson]:
    return [lesson(shape, target=target, **changes) for shape in SHAPES]


def fit(database: Database, *known: Lesson) -> list[Base]:
    return list(pretrain(database, taught(*known), "lightgbm"))


def versions(database: Database) -> list[ModelVersion]:
    with database.session() as session:
        return ModelVersions(session).page().items[::-1]


def test_every_operator_and_target_gets_a_base(database: Database) -> None:
    found = fit(database, *tasks(), *tasks(LARGE), *tasks(op="conv2d"))
    assert [(base.op, base.target) for base in found] == [("conv2d", CPU), ("matmul", CPU), ("matmul", LARGE)]
    assert [str(base.name) for base in found] == ["base:conv2d/lightgbm@1", f"{BASE}@1", f"{BASE}@1"]
    assert [version.target for version in versions(database)] == [CPU, CPU, LARGE]


def test_a_base_is_stored_with_its_figures_its_snapshot_and_its_parent(database: Database) -> None:
    fit(database, *tasks())
    fit(database, *tasks())
    first, second = versions(database)
    assert (second.version, second.parent_id, second.active, first.active) == (2, first.id, True, False)
    assert (second.snapshot, second.seen_upto, second.rows) == ("rows-1", 240, 240)
    assert second.metrics["pairwise"] > 0.6
    assert {"split": "by-task", "tasks": 4, "trained_on": 240}.items() <= second.metrics.items()


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
    [base] = fit(database, lesson(SHAPES[0], 100, target=CPU))
    assert (base.metrics["split"], base.tasks) == ("within-task", 1)


def test_a_handful_of_rows_makes_no_base_and_stops_no_other(database: Database) -> None:
    few, base = fit(database, lesson(SHAPES[0], 20, target=CPU, op="a handful"), *tasks())
    assert (few.op, few.name, few.rows) == ("a handful", None, 20)
    assert [version.family for version in versions(database)] == ["base:matmul"]
    assert base.name is not None


def test_progress_reaches_its_end(database: Database) -> None:
    seen: list[tuple[int, int]] = []
    list(pretrain(database, taught(*tasks(), *tasks(LARGE)), "draft", lambda *at: seen.append(at)))
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_what_a_snapshot_froze_is_what_a_base_learns_from(filled: Filled) -> None:
    for workload in ("w0", "w1"):
        batch = [filled.ok(slot, 2.0 + slot) for slot in range(20)]
        filled.write(lambda session, at=workload, new=batch: filled.measure(session, at, new))
    taken = take_snapshot(filled.database, "mine", Selection())
    [base] = pretrain(filled.database, lessons_of(filled.database, "mine", Selection()), "draft")
    [stored] = versions(filled.database)
    assert (stored.snapshot, stored.seen_upto, stored.rows) == ("mine", taken.upto, 45)
    assert base.tasks == 2
