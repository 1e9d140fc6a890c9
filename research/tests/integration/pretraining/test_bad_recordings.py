"""A recording that is torn, not ours, or tells impossible times teaches nothing, and it is said why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn_research.pretraining.read_measurements import read_training_data
from mallorn_research.pretraining.training_data import rows_for
from mallorn_research.replay.recorded_tasks_from_dataset import recorded_tasks
from mallorn_research.replay.recording_file import write_tasks
from tests.fixtures.filled_dataset import Filled

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
Change = Callable[[pa.Table], pa.Table]


@pytest.fixture
def recording(filled: Filled, tmp_path: Path) -> Path:
    file = tmp_path / "spaces.parquet"
    write_tasks(file, recorded_tasks(filled.database, 1), {})
    return file


def put(name: str, *values: Any) -> Change:
    """Other values in a column."""

    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        column = [*values, *table.column(name).to_pylist()[len(values) :]]
        return table.set_column(at, table.schema.field(name), pa.array(column, table.schema.field(name).type))

    return change


def rewrite(file: Path, change: Change) -> None:
    table = pq.read_table(file)
    pq.write_table(change(table), file, write_page_checksum=True)


def tear(file: Path) -> None:
    """A bit that fell over on the disk, in the middle of a page."""
    rewrite(file, lambda table: table)
    content = bytearray(file.read_bytes())
    content[40] ^= 0xFF
    file.write_bytes(content)


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a torn file": (lambda at: at.write_bytes(at.read_bytes()[:-100]), "is not a Parquet file"),
    "a torn page": (tear, "incomplete or not"),
    "an empty file": (lambda at: at.write_bytes(b""), "is not a Parquet file"),
    "a missing column": (
        lambda at: rewrite(at, lambda table: table.drop_columns(["flops"])), "is not a recording"
    ),
    "no facts": (
        lambda at: rewrite(at, lambda table: table.replace_schema_metadata(None)), "is not a recording"
    ),
    "an unknown outcome": (lambda at: rewrite(at, put("outcome", "perfect")), "incomplete or not"),
    "choices that are none": (lambda at: rewrite(at, put("choices", *5 * ["3"])), "incomplete or not"),
    "a decision missing": (lambda at: rewrite(at, put("decisions", None)), "incomplete or not"),
    "a zero": (lambda at: rewrite(at, put("latency_us", 0.0)), "times are not positive"),
    "a negative time": (lambda at: rewrite(at, put("latency_us", -3.0)), "times are not positive"),
    "an infinite time": (lambda at: rewrite(at, put("latency_us", float("inf"))), "times are not positive"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_whole_or_not_possible_is_refused(name: str, recording: Path) -> None:
    spoil, said = BAD[name]
    spoil(recording)
    with pytest.raises(InvalidRequest, match=said) as caught:
        rows_for(read_training_data(recording).tasks, "decisions")
    assert len(caught.value.message.splitlines()) == 1
    assert caught.value.hint
