"""An export that is not whole, or not ours, is refused in one sentence before anything is stored."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mallorn.core.errors import InvalidRequest, MallornError, NotFound
from mallorn.db.dataset.export_files import MEASUREMENTS, SNAPSHOT_KEY, VERSION_KEY, DatasetReader
from mallorn.db.dataset.import_dataset import import_dataset
from mallorn.db.session import Database
from mallorn.db.tables import SourceDataset, Workload
from tests.fixtures.filled_dataset import Filled, stored

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
ROWS = "measurements.parquet"
Change = Callable[[pa.Table], pa.Table]


@pytest.fixture
def parcel(filled: Filled, tmp_path: Path) -> Path:
    filled.exported(tmp_path / "out")
    return tmp_path / "out"


def rewrite(file: Path, change: Change) -> None:
    table = pq.read_table(file)
    pq.write_table(change(table), file)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flip(file: Path) -> None:
    """A bit that fell over on the disk, in the middle of a page."""
    content = bytearray(file.read_bytes())
    content[40] ^= 0xFF
    file.write_bytes(content)


def head(key: bytes, value: str) -> Change:
    return lambda table: table.replace_schema_metadata({**table.schema.metadata, key: value})


def cast(name: str, kind: pa.DataType) -> Change:
    return lambda table: table.set_column(
        table.schema.get_field_index(name), name, table.column(name).cast(kind)
    )


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a newer schema": (lambda at: rewrite(at / ROWS, head(VERSION_KEY, "2")), "schema version 2; this"),
    "somebody's Parquet": (
        lambda at: rewrite(at / ROWS, lambda table: table.replace_schema_metadata(None)), "was not written by"
    ),
    "a missing column": (
        lambda at: rewrite(at / ROWS, lambda table: table.drop_columns(["sketch", "target"])),
        "lacks the column target, sketch",
    ),
    "a column of another kind": (lambda at: rewrite(at / ROWS, cast("row", pa.string())), "the column row"),
    "a torn file": (lambda at: cut(at / ROWS), "is damaged or not a Parquet file"),
    "a torn companion": (lambda at: cut(at / "sketches.parquet"), "is damaged or not a Parquet file"),
    "an empty file": (lambda at: (at / ROWS).write_bytes(b""), "is damaged or not a Parquet file"),
    "a flipped bit": (lambda at: flip(at / ROWS), "is damaged or not a Parquet file"),
    "a missing file": (lambda at: (at / "workloads.parquet").unlink(), "there is no workloads.parquet"),
    "missing rows": (lambda at: rewrite(at / ROWS, lambda table: table.slice(1)), "holds 4 of the 5 rows"),
    "another snapshot's": (
        lambda at: rewrite(at / "sketches.parquet", head(SNAPSHOT_KEY, '{"rows":5}')), "different snapshots"
    ),
    "no snapshot": (lambda at: rewrite(at / ROWS, head(SNAPSHOT_KEY, "x")), "does not name its snapshot"),
    "a missing workload": (
        lambda at: rewrite(at / "workloads.parquet", lambda table: table.slice(1)), "lacks w0, to which"
    ),
    "a target that is none": (
        lambda at: rewrite(at / ROWS, put("target", '{"kind":"llvm"}')), "a CPU target needs num-cores"
    ),
    "args that are no JSON": (lambda at: rewrite(at / "workloads.parquet", put("args", "{")), "is not JSON"),
    "choices that are none": (
        lambda at: rewrite(at / "sketches.parquet", put("choices", "3")), "invalid choices"
    ),
}  # fmt: skip


def put(name: str, value: Any) -> Change:
    """The same value in every row of a column."""

    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        column = pa.array([value] * len(table), table.schema.field(name).type)
        return table.set_column(at, pa.field(name, column.type), column)

    return change


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_whole_is_refused(name: str, parcel: Path, elsewhere: Database) -> None:
    spoil, said = BAD[name]
    spoil(parcel)
    with pytest.raises((InvalidRequest, NotFound), match=said) as caught:
        import_dataset(elsewhere, parcel)
    assert len(caught.value.message.splitlines()) == 1
    assert caught.value.hint
    with elsewhere.session() as session:
        assert session.query(Workload).count() == session.query(SourceDataset).count() == 0
    assert stored(elsewhere) == []


NAN, INF = float("nan"), float("inf")
FLAWS: dict[str, tuple[dict[str, Any], str]] = {
    "zero": ({"latency_us": 0.0}, "latency"),
    "negative": ({"latency_us": -1.0}, "latency"),
    "infinite": ({"latency_us": INF}, "latency"),
    "not a number": ({"latency_us": NAN}, "latency"),
    "a run of no length": ({"run_us": [5.0, 0.0]}, "latency"),
    "no times": ({"run_us": []}, "no times"),
    "an unknown outcome": ({"outcome": "perfect"}, "unknown word"),
    "an unknown kind": ({"kind": "foreign"}, "unknown word"),
    "a decision too few": ({"decisions": [1]}, "decisions"),
    "a failure with a time": ({"outcome": "run_error"}, "times of a failure"),
    "no context": ({"threads": None}, "no measuring context"),
    "NUL": ({"origin": "a\0b"}, "text"),
    "no date": ({"created_at": NAN}, "date"),
    "no outcome": ({"outcome": None}, "missing value"),
}


def spoil_first_row(parcel: Path, name: str) -> str:
    """Write a flaw into the first measurement of an export; return the reason by which it is counted."""
    changes, counted = FLAWS[name]

    def spoil(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows[0] |= changes
        loose = pa.schema([field.with_nullable(True) for field in MEASUREMENTS], table.schema.metadata)
        return pa.Table.from_pylist(rows, schema=loose)

    rewrite(parcel / ROWS, spoil)
    return counted


@pytest.mark.parametrize("name", FLAWS)
def test_a_bad_value_costs_its_row_only(name: str, parcel: Path, elsewhere: Database) -> None:
    counted = spoil_first_row(parcel, name)
    result = import_dataset(elsewhere, parcel)
    assert (result.added, dict(result.skipped)) == (4, {counted: 1})


def test_an_import_that_was_interrupted_goes_on(
    parcel: Path, elsewhere: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = DatasetReader.batches

    class Killed(MallornError):
        """The power went."""

    def until_killed(self: DatasetReader, table: Any, size: int = 2) -> Any:
        for number, batch in enumerate(whole(self, table, 2)):
            if number == 2:
                raise Killed
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(DatasetReader, "batches", until_killed)
        with pytest.raises(Killed):
            import_dataset(elsewhere, parcel)
    assert len(stored(elsewhere)) == 4
    assert import_dataset(elsewhere, parcel).added == 1
    assert json.loads(pq.read_schema(parcel / ROWS).metadata[SNAPSHOT_KEY])["rows"] == 5
