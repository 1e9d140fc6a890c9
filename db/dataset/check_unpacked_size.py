"""What a Parquet file unpacks to, known before it is unpacked: a few kilobytes may hold terabytes."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mallorn.core.errors import InvalidRequest

MOST_BYTES: Final = 1 << 30  # of a row group, and of the texts of a batch
AGAIN: Final = "mallorn dataset export DIR   (write it again where it came from)"


def check_groups(path: Path, file: pq.ParquetFile) -> None:
    """Raise InvalidRequest for a file with a row group that no memory should hold."""
    groups = range(file.metadata.num_row_groups)
    _check(path, max((file.metadata.row_group(at).total_byte_size for at in groups), default=0))


def check_texts(path: Path, batch: pa.RecordBatch) -> None:
    """Raise InvalidRequest where texts that the file has once are those of so many rows that together they
    are too long; the batch has them as dictionaries."""
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            _check(path, pc.sum(lengths).as_py() or 0)


def _check(path: Path, unpacked_bytes: int) -> None:
    if unpacked_bytes > MOST_BYTES:
        raise InvalidRequest(
            f"a part of {path} unpacks to {unpacked_bytes} bytes, more than {MOST_BYTES}", hint=AGAIN
        )
