"""Records of another tuner teach bases of models that need no program of them."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import log2
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from mallorn.core.errors import InvalidRequest
from mallorn.core.values.candidate import Choice, ChoiceKind, Sketch
from mallorn.costmodels.views import PRIMITIVES
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn.db.dataset.snapshots import ignore_progress
from mallorn.db.repositories.snapshots import Selection
from mallorn.db.repositories.workloads import NewSketch, Sketches
from mallorn.db.session import Database
from mallorn_research.pretraining.from_tuner_logs import UNKNOWN, UNREADABLE, add_tuner_log_records
from mallorn_research.pretraining.read_measurements import read_measurements
from mallorn_research.pretraining.training_data import TrainingData, rows_for
from mallorn_research.tuner_logs.auto_scheduler import FORMAT
from mallorn_research.tuner_logs.foreign_records import ForeignRecords
from mallorn_research.tuner_logs.store_tuner_logs import find_logs, load_log
from research.tests.fixtures.tenset_log import TARGETS, product_steps, record, write_products
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.database import BOTH
from tests.fixtures.rows import Rows

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
HERE = '{"kind":"llvm","num-cores":2}'
OURS = NewSketch(Sketch("ours", "", (Choice(ChoiceKind.TILE, 2, 64, 64),)), "made-up/1", "0.27.0")
MODEL = f"{__name__}:OfPrimitives"


class OfPrimitives(XGBoost):
    """A model of the view of `tlp` that needs no torch."""

    view = PRIMITIVES.name


def bring(database: Database, file: Path) -> None:
    [log] = find_logs(file)
    load_log(database, log, lambda problem: pytest.fail(str(problem)))


@pytest.fixture
def products(database: Database, tmp_path: Path) -> Database:
    write_products(tmp_path / "products.json")
    bring(database, tmp_path / "products.json")
    return database


def taught(database: Database, op: str | None = None, limit: int = 100) -> TrainingData:
    nothing = read_measurements(database, None, Selection(), ignore_progress)
    return add_tuner_log_records(database, nothing, MODEL, op, limit)


def test_records_are_tasks_of_the_operator_that_their_tiles_tell(products: Database) -> None:
    found = taught(products)
    assert [task.op for task in found.tasks] == ["matmul", "matmul"]
    assert len({task.target for task in found.tasks}) == len(TARGETS)
    assert len({task.workload for task in found.tasks}) == 1, "the same program on both"
    assert [len(task.trials) for task in found.tasks] == [40, 40]
    first = found.tasks[0]
    assert [round(2**number - 1) for number in first.descriptors] == [2 * 512 * 64 * 1024, 512, 64, 1024]
    rows = rows_for(found.tasks, PRIMITIVES.name)
    assert rows.features.shape == (80, PRIMITIVES.width)
    assert len({row.tobytes() for row in rows.features[:40]}) == 40, "each candidate is seen as itself"


def test_they_stand_beside_what_was_measured_here(products: Database) -> None:
    before = read_measurements(products, None, Selection(), ignore_progress)
    after = add_tuner_log_records(products, before, MODEL)
    assert after.snapshot != before.snapshot
    assert taught(products, op="conv2d").tasks == []


@BOTH
def test_of_many_records_a_share_teaches_and_the_best_of_each_task(products: Database) -> None:
    with products.session() as session:
        every = list(ForeignRecords(session).sample(FORMAT, 100))
        some = list(ForeignRecords(session).sample(FORMAT, 8))
    assert len(some) < 20 < len(every) == 80
    for key in {found.task_key for found in every}:
        whole, share = ([r.latency_us or 0 for r in rows if r.task_key == key] for rows in (every, some))
        assert min(share) == min(whole)


@ON_SQLITE
def test_what_tells_no_operator_is_left_out_and_counted(database: Database, tmp_path: Path) -> None:
    pointwise = [["SP", 1, 0, 64, [8], 1], ["AN", 1, 1, 2]]
    good = product_steps((1, 2, 2), (1, 2, 2), 4)
    lines = [("a", pointwise), ("b", good), ("b", [["XX", 1]])]
    written = [record(f'["{task}"]', TARGETS[0], steps, 1e-3) for task, steps in lines]
    (tmp_path / "log.json").write_text("\n".join(written) + "\n")
    bring(database, tmp_path / "log.json")
    found = taught(database)
    assert [len(task.trials) for task in found.tasks] == [1]
    assert found.skipped == {UNKNOWN: 1, UNREADABLE: 1}


def tiled(results: Sequence[int], sums: Sequence[int], gpu: bool) -> list[Any]:
    """Steps that tile these loops of a stage, as a policy does for CPUs or GPUs."""
    cuts = [(extent, 3 + gpu) for extent in results] + [(extent, 1 + gpu) for extent in sums]
    starts = accumulate((length + 1 for _, length in cuts), initial=0)
    placed = zip(starts, cuts, strict=False)
    return [["SP", 3, at, extent, [1] * length, 1] for at, (extent, length) in placed]


@ON_SQLITE
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize(
    ("results", "sums", "op"),
    [
        ((128, 64), (32,), ["matmul"]),
        ((12, 128, 64), (32,), ["batch_matmul"]),
        ((1, 56, 56, 64), (3, 3, 32), ["conv2d"]),
        ((1, 56, 56, 64), (3, 3), ["depthwise_conv2d"]),
        ((1, 56, 56, 64), (), []),
        ((6, 6, 49, 64), (32,), []),  # a product of Winograd's: no operator of ours
    ],
)
def test_the_operator_is_told_by_how_many_loops_are_tiled(
    database: Database,
    tmp_path: Path,
    results: tuple[int, ...],
    sums: tuple[int, ...],
    op: list[str],
    gpu: bool,
) -> None:
    (tmp_path / "log.json").write_text(record("task", TARGETS[0], tiled(results, sums, gpu), 1e-3))
    bring(database, tmp_path / "log.json")
    found = taught(database).tasks
    assert [task.op for task in found] == op
    for task in found:
        assert task.descriptors[1:] == tuple(log2(1 + extent) for extent in (*results, *sums))


@ON_SQLITE
def test_a_model_of_another_view_cannot_learn_from_them(products: Database) -> None:
    nothing = read_measurements(products, None, Selection(), ignore_progress)
    with pytest.raises(InvalidRequest, match="xgboost reads decisions"):
        add_tuner_log_records(products, nothing, "xgboost")


@pytest.fixture
def pretrain(products: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("MALLORN_DATABASE_URL", products.url)
    return partial(mallorn, "costmodels", "pretrain")


@ON_SQLITE
def test_a_base_for_this_machine_is_judged_on_a_target_that_it_has_not_seen(
    pretrain: Callable[..., Result],
) -> None:
    [told] = data(pretrain(MODEL, "--foreign", "--for", HERE, "--json"))
    assert (told["op"], told["target"], told["rows"], told["tasks"]) == ("matmul", HERE, 80, 1)
    assert (told["split"], told["foreign_rows"]) == ("by-target", 80)
    assert told["pairwise"] > 0.6


@ON_SQLITE
def test_a_base_that_no_candidate_of_ours_has_judged_is_not_active(pretrain: Callable[..., Result]) -> None:
    result = pretrain(MODEL, "--foreign", "--for", HERE)
    assert result.exit_code == 0, result.stderr
    assert "(by-target), and all of them are other tuners'" in result.stderr
    assert "mallorn costmodels activate base:matmul/" in result.stderr


@ON_SQLITE
def test_a_base_of_both_is_active_where_it_beats_chance(
    products: Database, pretrain: Callable[..., Result]
) -> None:
    rows = Rows(products)
    rows.sketch_id = rows.write(lambda session: Sketches(session).ensure_many([OURS]))["ours"]
    rows.measured_round(*[rows.ok(slot, 2.0 + slot) for slot in range(20)])
    [told] = data(pretrain(MODEL, "--foreign", "--for", HERE, "--json"))
    assert (told["active"], told["foreign_rows"], told["training_rows"]) == (
        told["pairwise"] >= 0.55,
        80,
        100,
    )


@ON_SQLITE
def test_records_are_for_no_target_of_their_own(pretrain: Callable[..., Result]) -> None:
    refused(pretrain(MODEL, "--foreign"), f"mallorn costmodels pretrain {MODEL} --foreign --for TARGET")
