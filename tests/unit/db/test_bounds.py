"""What unpacks to more than memory holds is refused before it is unpacked."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.db.dataset import export_files


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(export_files, "MOST_BYTES", 1000)
    return tmp_path / "some.parquet"


@pytest.mark.parametrize(("rows", "good"), [(10, True), (10_000, False)])
def test_a_row_group_is_judged_by_what_it_unpacks_to(path: Path, rows: int, good: bool) -> None:
    pq.write_table(pa.table({"a": range(rows)}), path, compression="zstd", use_dictionary=False)
    if good:
        export_files.check_row_group_sizes(path, pq.ParquetFile(path))
    else:
        with pytest.raises(InvalidRequest, match=r"unpacks to \d+ bytes"):
            export_files.check_row_group_sizes(path, pq.ParquetFile(path))


@pytest.mark.parametrize(("rows", "good"), [(9, True), (11, False)])
def test_a_text_counts_as_often_as_there_are_rows_with_it(path: Path, rows: int, good: bool) -> None:
    once = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 100])
    batch = pa.record_batch([once], names=["a"])
    if good:
        export_files.check_text_sizes(path, batch)
    else:
        with pytest.raises(InvalidRequest, match=f"unpacks to {rows * 100} bytes"):
            export_files.check_text_sizes(path, batch)
