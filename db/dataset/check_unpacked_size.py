"""Limit what a Parquet file may unpack to, before it is unpacked: a few KB may hold terabytes."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mallorn.core.errors import InvalidRequest

MOST_BYTES: Final = 1 << 30  # limit for a row group, and for the texts of a batch
AGAIN: Final = "mallorn dataset export DIR   (write it again where it came from)"


def check_groups(path: Path, file: pq.ParquetFile) -> None:
    """Raise InvalidRequest if a row group of the file unpacks to more than MOST_BYTES."""
    groups = range(file.metadata.num_row_groups)
    _check(path, max((file.metadata.row_group(index).total_byte_size for index in groups), default=0))


def check_texts(path: Path, batch: pa.RecordBatch) -> None:
    """Raise InvalidRequest if the texts of all rows of a batch total more than MOST_BYTES. The file, and
    the batch's dictionary columns, store a text that many rows share only once."""
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            _check(path, pc.sum(lengths).as_py() or 0)


def _check(path: Path, unpacked_bytes: int) -> None:
    if unpacked_bytes > MOST_BYTES:
        raise InvalidRequest(
            f"a part of {path} unpacks to {unpacked_bytes} bytes, more than {MOST_BYTES}", hint=AGAIN
        )
