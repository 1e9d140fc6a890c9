"""A dataset that a stranger wrote: keys and figures are computed again; what is not allowed is left out."""

import json
import shutil
from collections.abc import Iterator
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from benchmarks import hostile_programs
from mallorn.db.dataset.export_files import MEASUREMENT_TABLE, SKETCH_TABLE, WORKLOAD_TABLE
from mallorn.db.dataset.import_dataset import Imported, import_export
from mallorn.db.repositories.workloads import tir_of, trace_of
from mallorn.db.session import Database
from mallorn.db.tables import Base, Measurement, SketchRow, Workload
from mallorn.workers.interfaces.checked_dataset import CheckedDataset
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.tvm.space.sketches import sketch_key
from tests.fixtures.hostile import programs
from tests.fixtures.parcels import ROWS_EACH, WORKLOADS, change_rows, rename, small_parcel

ALL = WORKLOADS * ROWS_EACH


@pytest.fixture(scope="module")
def graphs() -> Iterator[ModelCompiler]:
    with ModelCompiler() as child:
        yield child


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_parcel(tmp_path_factory.mktemp("honest"))


@pytest.fixture
def parcel(honest: Path, tmp_path: Path) -> Path:
    """A copy to be spoilt."""
    return Path(shutil.copytree(honest, tmp_path / "parcel"))


@pytest.fixture
def bring_in(graphs: ModelCompiler, parcel: Path, elsewhere: Database) -> Any:
    def bring() -> Imported:
        return import_export(elsewhere, CheckedDataset(graphs, parcel))

    return bring


def stored(database: Database, table: type) -> dict[str, Any]:
    with database.session() as session:
        return {row.key: row for row in session.query(table)}


def test_an_honest_one_comes_in_whole_and_once(bring_in: Any, parcel: Path, elsewhere: Database) -> None:
    sent: dict[str, str] = {}
    change_rows(parcel, SKETCH_TABLE, lambda row: sent.update({row["key"]: row["trace"]}))
    first, again = bring_in(), bring_in()
    assert (first.added, dict(first.skipped)) == (ALL, {})
    assert (again.added, again.known, dict(again.skipped)) == (0, ALL, {})
    assert len(stored(elsewhere, Workload)) == WORKLOADS
    assert {key: trace_of(row) for key, row in stored(elsewhere, SketchRow).items()} == sent


def test_what_it_says_of_a_program_is_computed_again(
    bring_in: Any, parcel: Path, elsewhere: Database, graphs: ModelCompiler
) -> None:
    bring_in()
    true = {key: (row.flops, row.args, row.features) for key, row in stored(elsewhere, Workload).items()}
    lies = {"flops": 1e30, "op": "pool", "structure": "s", "args": "{}", "features": '{"extents":[-9]}'}
    with elsewhere.transaction() as session:
        session.query(Measurement).delete()
        session.query(Workload).delete()
    change_rows(parcel, WORKLOAD_TABLE, lambda row: row.update(lies))
    assert bring_in().added == ALL
    found = stored(elsewhere, Workload)
    assert {key: (row.flops, row.args, row.features) for key, row in found.items()} == true
    assert "pool" not in {row.op for row in found.values()}


def test_a_program_under_another_ones_key_is_left_out(
    bring_in: Any, parcel: Path, elsewhere: Database
) -> None:
    texts: list[str] = []
    change_rows(parcel, WORKLOAD_TABLE, lambda row: texts.append(row["tir"]))
    change_rows(parcel, WORKLOAD_TABLE, lambda row: row.update(tir=texts[0]))
    result = bring_in()
    assert (result.added, dict(result.skipped)) == (ROWS_EACH, {"another key than its text has": ROWS_EACH})
    assert [tir_of(row) for row in stored(elsewhere, Workload).values()] == [texts[0]]


@pytest.mark.parametrize(
    "name", ["tirx.call_extern", "pragma_import_c on a block", "pragma_import_llvm on a loop"]
)
def test_a_program_that_calls_or_holds_code_is_left_out(
    name: str, bring_in: Any, parcel: Path, elsewhere: Database
) -> None:
    hostile = next(text.decode() for label, text in programs.programs() if label.startswith(name))
    change_rows(parcel, WORKLOAD_TABLE, lambda row: row.update(tir=hostile))
    result = bring_in()
    [(reason, count)] = result.skipped.items()
    assert (result.added, count) == (0, ALL)
    assert reason.startswith("a stored program is refused: ")
    assert stored(elsewhere, Workload) == {}


def test_a_sketch_that_imports_code_is_left_out_even_under_its_own_key(
    bring_in: Any, parcel: Path, elsewhere: Database
) -> None:
    names: dict[str, str] = {}

    def plant(row: dict[str, Any]) -> None:
        text = ["Annotate", ["b0", json.dumps(programs.LLVM)], ["pragma_import_llvm"], []]
        trace = json.dumps([*json.loads(row["trace"]), text])
        names[row["key"]] = sketch_key(trace)
        row.update(trace=trace, key=names[row["key"]])

    change_rows(parcel, SKETCH_TABLE, plant)
    rename(parcel, "sketch", names)
    result = bring_in()
    assert result.added == 0
    assert dict(result.skipped) == {
        "a trace is refused: the annotation pragma_import_llvm is not allowed": ALL
    }
    assert stored(elsewhere, SketchRow) == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"trace": "[]"}, "another key than its text has"),
        ({"choices": "[]"}, "other choices than its trace has"),
        ({"ordinal": -5}, "other choices than its trace has"),
        ({"ordinal": 2**31 - 1}, "other choices than its trace has"),
    ],
    ids=["trace", "choices", "below zero", "far away"],
)
def test_a_sketch_that_lies_is_left_out(
    change: dict[str, Any], reason: str, bring_in: Any, parcel: Path, elsewhere: Database
) -> None:
    change_rows(parcel, SKETCH_TABLE, lambda row: row.update(change))
    if "choices" in change:  # rows with as many decisions as choices, which is checked first
        change_rows(parcel, MEASUREMENT_TABLE, lambda row: row.update(decisions=[]))
    result = bring_in()
    assert (result.added, set(result.skipped)) == (0, {reason})


def every_row(database: Database) -> dict[str, set[str]]:
    """All rows of all tables, as text."""
    with database.session() as session:
        return {
            table.name: {repr(tuple(row)) for row in session.execute(select(table))}
            for table in Base.metadata.sorted_tables
        }


@pytest.mark.parametrize("share", [20, pytest.param(1, marks=pytest.mark.long)])
def test_no_hostile_dataset_changes_a_row_of_another_owner(
    share: int, graphs: ModelCompiler, honest: Path, tmp_path: Path, filled: Any
) -> None:
    """Programs, traces and times come under the keys of rows that are stored, which would be theirs."""
    database: Database = filled.database
    assert import_export(database, CheckedDataset(graphs, honest)).added == ALL
    before = every_row(database)
    assert {row for name in ("jobs", "measurements", "workloads", "sketches") for row in before[name]}
    corpus = hostile_programs.cases()

    def come(table: Any, column: str, values: Iterator[Any]) -> Imported:
        parcel = Path(shutil.copytree(honest, tmp_path / "hostile", dirs_exist_ok=True))
        change_rows(parcel, table, lambda row: row.update({column: next(values)}))
        return import_export(database, CheckedDataset(graphs, parcel))

    for table, column, carrier in ((WORKLOAD_TABLE, "tir", "dataset"), (SKETCH_TABLE, "trace", "trace")):
        texts = [data.decode(errors="replace") for _, _, data in corpus[carrier][::share]]
        following = cycle(texts)
        for _ in range(0, len(texts), WORKLOADS):
            result = come(table, column, following)
            assert result.added == 0
            assert result.skipped.total() > 0
            assert all(reason.isprintable() for reason in result.skipped)
    assert come(MEASUREMENT_TABLE, "run_us", repeat([1e-3])).added == 0
    after = every_row(database)
    assert {name: rows - after[name] for name, rows in before.items() if rows - after[name]} == {}
    assert after["measurements"] == before["measurements"]
