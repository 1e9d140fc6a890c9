"""The files of an exported dataset: their schema, metadata and rules for good rows, and a reader.

The reader checks that all of an export can be read before any of it is stored.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.installation import pip_upgrade_command
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.storable_json import quote_untrusted, read_json
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import unpack_choices

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
MOST_BYTES: Final = 1 << 30  # limit for a row group, and for the texts of a batch
AGAIN: Final = "mallorn dataset export DIR   (write it again where it came from)"
NEEDED: Final = (
    *("dataset", "row", "kind", "workload", "target", "sketch", "decisions"),
    *("slot", "outcome", "run_us", "origin", "created_at"),
)
CONTEXT: Final = ("host_class", "tvm_version", "threads", "evaluator")
KINDS: Final = frozenset({MeasurementKind.TRIAL, MeasurementKind.FINISH})
OUTCOMES: Final = frozenset(Outcome)
BATCH_ROWS: Final = 10_000  # rows in memory, and in one transaction, at a time
DAMAGE: Final = (pa.ArrowException, OSError, UnicodeDecodeError)


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


def check_row_group_sizes(path: Path, file: pq.ParquetFile) -> None:
    """Raise InvalidRequest if a row group of the file unpacks to more than MOST_BYTES."""
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    _check_unpacked_size(path, max((group.total_byte_size for group in groups), default=0))


def check_text_sizes(path: Path, batch: pa.RecordBatch) -> None:
    """Raise InvalidRequest if a batch's texts, counted once per row, exceed MOST_BYTES."""
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            _check_unpacked_size(path, pc.sum(lengths).as_py() or 0)


def _check_unpacked_size(path: Path, unpacked_bytes: int) -> None:
    if unpacked_bytes > MOST_BYTES:
        message = f"a part of {path} unpacks to {unpacked_bytes} bytes, more than {MOST_BYTES}"
        raise InvalidRequest(message, hint=AGAIN)


_TEXTS: Final = {
    table.name: [field.name for field in table.schema if field.type == pa.string()] for table in TABLES
}


@dataclass(frozen=True, slots=True)
class DatasetReader:
    """An export whose files were checked to the last row."""

    directory: Path
    snapshot: dict[str, object]
    rows: int
    widths: dict[str, int]  # number of decisions of each sketch, by sketch key
    refused: Mapping[str, str] = field(default_factory=dict)  # empty: this reader refuses no key

    def batches(self, table: Table, size: int = BATCH_ROWS) -> Iterator[list[Row]]:
        absent = dict.fromkeys(ADDED.intersection(table.schema.names))
        for batch in _open(self.directory, table).iter_batches(size, columns=table.schema.names):
            yield [absent | row for row in batch.to_pylist()]


def open_export(directory: Path) -> DatasetReader:
    """Check all files' metadata, columns and checksums, and that they belong together.

    Raises NotFound if a file is missing, InvalidRequest with one sentence for other faults.
    """
    files = {table.name: _open(directory, table) for table in TABLES}
    heads: list[dict[str, object]] = []
    for table in TABLES:
        try:
            heads.append(dict(read_json(files[table.name].schema_arrow.metadata[SNAPSHOT_KEY])))
        except (KeyError, TypeError, ValueError):
            message = f"{directory / table.file} does not name its snapshot"
            raise InvalidRequest(message, hint=AGAIN) from None
    if any(head != heads[0] for head in heads):
        raise InvalidRequest(f"the files in {directory} are of different snapshots", hint=AGAIN)
    rows, expected_rows = files[MEASUREMENT_TABLE.name].metadata.num_rows, heads[0].get("rows")
    if rows != expected_rows:
        raise InvalidRequest(
            f"{directory} holds {rows} of the {quote_untrusted(expected_rows)} rows of its snapshot",
            hint=AGAIN,
        )
    workloads = {row["key"] for row in _parsed_rows(directory, WORKLOAD_TABLE, "args", "features")}
    widths: dict[str, int] = {}
    for row in _parsed_rows(directory, SKETCH_TABLE, "choices"):
        try:
            widths[row["key"]] = sum(choice.width for choice in unpack_choices(row["choices"]))
        except ValueError:
            raise InvalidRequest("a sketch has invalid choices", hint=AGAIN) from None
    _check_measurements(directory, {WORKLOAD_TABLE: workloads, SKETCH_TABLE: set(widths)})
    return DatasetReader(directory, heads[0], rows, widths)


def _open(directory: Path, table: Table) -> pq.ParquetFile:
    path = directory / table.file
    if not path.is_file():
        raise NotFound(f"there is no {table.file} in {directory}", hint="mallorn dataset export DIR")
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        _check_schema(path, file.schema_arrow, table)
        check_row_group_sizes(path, file)
    except DAMAGE as error:
        raise _unreadable(path, error) from None
    return file


def _check_schema(path: Path, schema: pa.Schema, table: Table) -> None:
    version = (schema.metadata or {}).get(VERSION_KEY, b"").decode(errors="replace")
    if version.isdigit() and version != str(VERSION):
        message = f"{path} has schema version {quote_untrusted(version)}; this Mallorn reads {VERSION}"
        raise InvalidRequest(message, hint=pip_upgrade_command())
    if version != str(VERSION):
        raise InvalidRequest(f"{path} was not written by `mallorn dataset export`", hint=AGAIN)
    absent_columns = [name for name in table.schema.names if name not in {*schema.names, *ADDED}]
    if absent_columns:
        raise InvalidRequest(f"{path} lacks the column {', '.join(absent_columns)}", hint=AGAIN)
    for column in (column for column in table.schema if column.name in schema.names):
        if schema.field(column.name).type != column.type:
            column_type = schema.field(column.name).type
            raise InvalidRequest(
                f"the column {column.name} of {path} holds {quote_untrusted(column_type)} instead of "
                f"{column.type}",
                hint=AGAIN,
            )


def _parsed_rows(directory: Path, table: Table, *json_columns: str) -> Iterator[Row]:
    batches = _batches(directory, table, 100)
    for row in (row for batch in batches for row in batch.select(table.schema.names).to_pylist()):
        if None in row.values():
            raise InvalidRequest(f"{directory / table.file} has a row without a value", hint=AGAIN)
        try:
            yield row | {name: read_json(row[name]) for name in json_columns}
        except ValueError:
            message = f"{directory / table.file}: {quote_untrusted(row['key'])} is not JSON"
            raise InvalidRequest(message, hint=AGAIN) from None


def _check_measurements(directory: Path, keys: Mapping[Table, set[str]]) -> None:
    """Read all rows. Raises InvalidRequest for damage, lost references or invalid texts."""
    targets: set[str | None] = set()
    evaluators: set[str | None] = set()
    for batch in _batches(directory, MEASUREMENT_TABLE, BATCH_ROWS):
        for column, table in (("workload", WORKLOAD_TABLE), ("sketch", SKETCH_TABLE)):
            used_keys = set(batch.column(column).unique().to_pylist())
            if missing_keys := sorted(map(str, used_keys - keys[table] - {None})):
                path = directory / table.file
                message = f"{path} lacks {quote_untrusted(missing_keys[0])}, to which a measurement refers"
                raise InvalidRequest(message, hint=AGAIN)
        targets.update(batch.column("target").unique().to_pylist())
        evaluators.update(batch.column("evaluator").unique().to_pylist())
    for text in sorted(targets - {None}, key=str):
        parse_target(str(text))
    for text in map(str, evaluators - {None}):
        try:
            read_json(text)
        except ValueError:
            file = directory / MEASUREMENT_TABLE.file
            message = f"{file} has an evaluator that is not JSON: {quote_untrusted(text)}"
            raise InvalidRequest(message, hint=AGAIN) from None


def _batches(directory: Path, table: Table, size: int) -> Iterator[pa.RecordBatch]:
    """Yield a table in batches, with all columns of the file, even unknown ones."""
    path = directory / table.file
    _open(directory, table)
    try:
        with pq.ParquetFile(
            path, page_checksum_verification=True, read_dictionary=_TEXTS[table.name]
        ) as file:
            for batch in file.iter_batches(size):
                batch.validate(full=True)  # checks that texts are valid UTF-8
                check_text_sizes(path, batch)
                yield batch
    except DAMAGE as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> InvalidRequest:
    reason = quote_untrusted(str(error).partition("\n")[0])
    return InvalidRequest(f"{path} is damaged or not a Parquet file: {reason}", hint=AGAIN)
