"""A new database begins with what comes along, once; what somebody trained there stays in use."""

from pathlib import Path

import pytest
from sqlalchemy import func, select

from benchmarks.shipping import ship, write_list
from mallorn.core.errors import MallornError
from mallorn.core.registry import resolve
from mallorn.core.targets import parse_target
from mallorn.costmodels.random import RandomModel
from mallorn.db.bundled.load_bundled import (
    FOLDER,
    PREFIX,
    Shipped,
    ShippedBase,
    bundled_rows_path,
    load_bundled_models,
    read_bases_list,
)
from mallorn.db.dataset.export_files import open_export
from mallorn.db.dataset.import_dataset import import_dataset
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.targets import Targets
from mallorn.db.session import Database
from mallorn.db.tables import CostModelRow, Measurement
from tests.fixtures.filled_dataset import Filled

MOST_BYTES = 20 << 20
TARGET = parse_target({"kind": "llvm", "num-cores": 64})
BASE = ShippedBase(
    family="base:matmul", target=TARGET.text, name="random", rows=5, metrics={}, file="bases/matmul"
)


@pytest.fixture
def folder(filled: Filled, tmp_path: Path) -> Path:
    """Five rows, and one base."""
    made = tmp_path / "along"
    filled.exported(bundled_rows_path(made))
    (made / "bases").mkdir()
    (made / BASE.file).write_bytes(RandomModel().save())
    write_list(made, Shipped(snapshot=f"{PREFIX}one", bases=[BASE]))
    return made


def count(database: Database) -> int:
    with database.session() as session:
        return session.scalar(select(func.count(Measurement.id))) or 0


def versions(database: Database) -> list[tuple[int, bool, str | None]]:
    with database.session() as session:
        found = session.scalars(select(CostModelRow).order_by(CostModelRow.id))
        return [(row.version, row.active, row.snapshot) for row in found]


def test_rows_and_bases_come_along_once(elsewhere: Database, folder: Path) -> None:
    assert load_bundled_models(elsewhere.url, folder) == 5
    assert count(elsewhere) == 5
    assert versions(elsewhere) == [(1, True, "shipped-one")]
    assert load_bundled_models(elsewhere.url, folder) == 0
    assert versions(elsewhere) == [(1, True, "shipped-one")]


def test_an_interrupted_start_is_finished_by_the_next(elsewhere: Database, folder: Path) -> None:
    import_dataset(elsewhere, bundled_rows_path(folder))  # as far as it came
    assert load_bundled_models(elsewhere.url, folder) == 0
    assert (count(elsewhere), versions(elsewhere)) == (5, [(1, True, "shipped-one")])


@pytest.mark.parametrize("damaged", [BASE.file, "bases.json", "rows/measurements.parquet"])
def test_files_that_cannot_be_read_cost_no_start(elsewhere: Database, folder: Path, damaged: str) -> None:
    if damaged == BASE.file:
        (folder / damaged).unlink()
    else:
        (folder / damaged).write_text("torn")
    assert load_bundled_models(elsewhere.url, folder) == 0
    assert (count(elsewhere), versions(elsewhere)) == (0, [])


def test_what_comes_along_later_takes_the_place_of_what_came_before(
    elsewhere: Database, folder: Path
) -> None:
    load_bundled_models(elsewhere.url, folder)
    write_list(folder, Shipped(snapshot=f"{PREFIX}two", bases=[BASE]))
    load_bundled_models(elsewhere.url, folder)
    assert versions(elsewhere) == [(1, False, "shipped-one"), (2, True, "shipped-two")]


def test_a_base_that_was_trained_there_stays_active(elsewhere: Database, folder: Path) -> None:
    with elsewhere.transaction() as session:
        target_id = Targets(session).ensure(TARGET).id
        own = NewCostModel(
            "base:matmul", target_id, "random", 0, 9, {}, RandomModel().save(), snapshot="mine"
        )
        CostModels(session).add(own)
    load_bundled_models(elsewhere.url, folder)
    assert versions(elsewhere) == [(1, True, "mine"), (2, False, "shipped-one")]


def test_an_installation_without_the_files_says_so_and_stores_nothing(
    elsewhere: Database, tmp_path: Path
) -> None:
    with pytest.raises(MallornError, match=r"lacks .*nothing") as refused:
        load_bundled_models(elsewhere.url, tmp_path / "nothing")
    assert "MALLORN_SHIPPED=false" in refused.value.hint
    assert count(elsewhere) == 0


def test_other_rows_take_the_place_of_those_that_came_along(filled: Filled, tmp_path: Path) -> None:
    """Of so few rows no base is worth anything, so none is listed."""
    filled.exported(tmp_path / "out")
    (tmp_path / "scratch").mkdir()
    assert list(ship([tmp_path / "out"], ["random"], tmp_path / "made", tmp_path / "scratch")) == []
    listed = read_bases_list(tmp_path / "made")
    assert listed is not None
    digest = str(open_export(bundled_rows_path(tmp_path / "made")).snapshot["digest"])
    assert (listed.snapshot, listed.bases) == (f"{PREFIX}{digest[:12]}", [])


def test_what_is_in_this_repository_can_be_read_and_is_small() -> None:
    shipped = read_bases_list(FOLDER)
    assert shipped is not None
    assert shipped.snapshot == open_export(bundled_rows_path(FOLDER)).snapshot["name"]
    for base in shipped.bases:
        resolve("cost_model", base.name).load((FOLDER / base.file).read_bytes())
        assert parse_target(base.target).text == base.target
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < MOST_BYTES
