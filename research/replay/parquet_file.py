"""Read and write Parquet files whose metadata holds facts about all rows, as JSON."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_rows(
    path: Path,
    schema: pa.Schema,
    rows: Sequence[Mapping[str, object]],
    key: bytes,
    facts: Mapping[str, object],
) -> None:
    """Write rows to a file atomically, and `facts` to its metadata under `key`."""
    metadata = {key: json.dumps(facts, sort_keys=True).encode()}
    table = pa.Table.from_pylist(rows, schema=schema.with_metadata(metadata))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    pq.write_table(table, draft, compression="zstd", compression_level=19)
    os.replace(draft, path)


def facts_of(path: Path, key: bytes) -> Any:
    """Return the facts that were written with the rows under `key`."""
    return json.loads(pq.read_schema(path).metadata[key])
