"""Rows with facts about all of them in one Parquet file."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_rows(
    path: Path, schema: pa.Schema, rows: Sequence[Mapping[str, Any]], key: bytes, facts: Mapping[str, Any]
) -> None:
    """Write a file at once: whoever looks sees the old one or the new one. `key` names the facts in it."""
    metadata = {key: json.dumps(facts, sort_keys=True).encode()}
    table = pa.Table.from_pylist(rows, schema=schema.with_metadata(metadata))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    pq.write_table(table, draft, compression="zstd", compression_level=19)
    os.replace(draft, path)


def facts_of(path: Path, key: bytes) -> dict[str, Any]:
    """The facts that were written with the rows."""
    facts: dict[str, Any] = json.loads(pq.read_schema(path).metadata[key])
    return facts
