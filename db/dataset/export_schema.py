"""An exported dataset's format: three Parquet files, metadata, and rules for good rows."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind

Row = dict[str, Any]  # a row of a file, before it is checked
# Increase it if old readers would misread new files; tests keep example files per version.
VERSION: Final = 1
VERSION_KEY: Final = b"mallorn.schema"
SNAPSHOT_KEY: Final = b"mallorn.snapshot"
TABLE_KEY: Final = b"mallorn.table"

MEASUREMENTS: Final = pa.schema(
    [
        pa.field("dataset", pa.string(), nullable=False),  # the dataset that measured it; `row`: id there
        pa.field("row", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),  # `trial`, or `finish`: a repeat of the best
        pa.field("workload", pa.string(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("flops", pa.float64(), nullable=False),
        pa.field("target", pa.string(), nullable=False),  # canonical JSON
        pa.field("host_class", pa.string()),  # measuring context; null: never reached a device
        pa.field("tvm_version", pa.string()),
        pa.field("threads", pa.int32()),
        pa.field("evaluator", pa.string()),  # JSON
        pa.field("sketch", pa.string(), nullable=False),
        pa.field("decisions", pa.list_(pa.int64()), nullable=False),
        pa.field("slot", pa.int16(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("run_us", pa.list_(pa.float32()), nullable=False),
        pa.field("latency_us", pa.float64()),
        pa.field("bound_us", pa.float64()),  # replaces the latency if other processes used its CPUs
        pa.field("disturbed", pa.float64()),  # share of its times when they did; null: unknown
        pa.field("error", pa.string()),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("predicted", pa.float64()),
        pa.field("build_ms", pa.float64()),
        pa.field("run_ms", pa.float64()),
        pa.field("model", pa.string()),  # the network whose job measured it; null: imported
        pa.field("created_at", pa.float64(), nullable=False),  # seconds since the epoch
    ]
)
# Columns that older exports lack.
ADDED: Final = frozenset({"bound_us", "disturbed"})
WORKLOADS: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("structure", pa.string(), nullable=False),
        pa.field("flops", pa.float64(), nullable=False),
        pa.field("tir", pa.string(), nullable=False),  # tvm.ir.save_json of the module
        pa.field("args", pa.string(), nullable=False),  # JSON
        pa.field("features", pa.string(), nullable=False),  # JSON
        pa.field("tvm_version", pa.string(), nullable=False),
    ]
)
SKETCHES: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("trace", pa.string(), nullable=False),  # JSON of the trace without decisions
        pa.field("choices", pa.string(), nullable=False),  # JSON
        pa.field("ordinal", pa.int32(), nullable=False),
        pa.field("space", pa.string(), nullable=False),
        pa.field("tvm_version", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    schema: pa.Schema

    @property
    def file(self) -> str:
        return f"{self.name}.parquet"

    def with_head(self, snapshot: Mapping[str, object]) -> pa.Schema:
        """Return the schema with version, table name and snapshot in its metadata."""
        head = json.dumps(dict(snapshot), sort_keys=True)
        metadata = {VERSION_KEY: str(VERSION), TABLE_KEY: self.name, SNAPSHOT_KEY: head}
        return self.schema.with_metadata(metadata)


MEASUREMENT_TABLE: Final = Table("measurements", MEASUREMENTS)
WORKLOAD_TABLE: Final = Table("workloads", WORKLOADS)
SKETCH_TABLE: Final = Table("sketches", SKETCHES)
TABLES: Final = (WORKLOAD_TABLE, SKETCH_TABLE, MEASUREMENT_TABLE)


NEEDED: Final = (
    *("dataset", "row", "kind", "workload", "target", "sketch", "decisions"),
    *("slot", "outcome", "run_us", "origin", "created_at"),
)
CONTEXT: Final = ("host_class", "tvm_version", "threads", "evaluator")
KINDS: Final = frozenset({MeasurementKind.TRIAL, MeasurementKind.FINISH})
OUTCOMES: Final = frozenset(Outcome)


def find_row_flaw(row: Row, widths: Mapping[str, int]) -> str | None:
    """Return why a row must be skipped, or None. `widths`: decision count by sketch key."""
    if any(row[name] is None for name in NEEDED):
        return "missing value"
    if row["kind"] not in KINDS or row["outcome"] not in OUTCOMES:
        return "unknown word"
    if len(row["decisions"]) != widths[row["sketch"]] or None in row["decisions"]:
        return "decisions"
    if any("\0" in row[name] for name in ("error", "origin", "dataset") if row[name]):
        return "text"
    if not math.isfinite(row["created_at"]) or row["created_at"] <= 0:
        return "date"
    is_ok = row["outcome"] == Outcome.OK
    time_us = row["latency_us"] if row["bound_us"] is None else row["bound_us"]
    if is_ok != bool(row["run_us"]) or is_ok != (time_us is not None):
        return "times of a failure" if not is_ok else "no times"
    if is_ok and any(row[name] is None for name in CONTEXT):
        return "no measuring context"
    times_us = [time_us, *row["run_us"]] if is_ok else []
    return None if all(time is not None and 0 < time < math.inf for time in times_us) else "latency"
