"""Recorded tasks as one Parquet file: one row per measurement, hosts in the metadata.

Values that many rows share are repeated in each row, which dictionary encoding and zstd make cheap.
Columns are those of an exported dataset, but a recording has no programs, so it is not an export.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.storable_json import compact_json, quote_untrusted, read_json
from mallorn.core.targets import Target
from mallorn.core.values.candidate import Candidate, Sketch, pack_choices, unpack_choices
from mallorn.core.values.machine import Machine, MachineKind
from mallorn.core.values.trial import Trial
from mallorn.db.dataset.export_files import MEASUREMENTS, SKETCHES, WORKLOADS, check_row_group_sizes

_LANES: Final = 16


@dataclass(frozen=True)
class RecordedTask:
    """A workload, its sketches and its distinct candidates in the order of measurement."""

    workload: str  # Workload.key
    name: str
    op: str
    structure: str
    flops: float
    args: Mapping[str, object]  # shapes and types, as in mallorn.db.tables.Workload.args
    descriptors: tuple[float, ...]
    target: str  # canonical JSON
    context: Mapping[str, object]  # host class, threads, evaluator: times compare if equal
    sketches: tuple[Sketch, ...]
    trials: tuple[Trial, ...]  # with origins: a recording has the bias of its searcher

    @cached_property
    def optimum_us(self) -> float | None:
        """The lowest recorded latency; None if every candidate failed."""
        return min((trial.latency_us for trial in self.trials if trial.latency_us is not None), default=None)

    @property
    def machine(self) -> Machine:
        """Machine assumed for the target; CPUs get 16 lanes, which recordings lack."""
        target = Target(self.target)
        return target.hardware.part(MachineKind).assume_machine(target.attrs, _LANES)

    @property
    def failures(self) -> int:
        return sum(trial.outcome is not Outcome.OK for trial in self.trials)


def select_every_operator(tasks: Sequence[RecordedTask], count: int) -> list[RecordedTask]:
    """Select `count` tasks, in turn the largest of each operator; keep their order."""
    kinds: dict[str, list[RecordedTask]] = {}
    for task in sorted(tasks, key=lambda task: -task.flops):
        kinds.setdefault(task.op, []).append(task)
    in_turn = [task for row in zip_longest(*kinds.values()) for task in row if task is not None]
    selected_ids = {id(task) for task in in_turn[:count]}
    return [task for task in tasks if id(task) in selected_ids]


FACTS: Final = b"mallorn.facts"
TASK: Final = ("workload", "target", "context")  # columns that identify a task
# Fields of tasks and of trials that a recording stores as they are.
TASK_FIELDS: Final = ("workload", "name", "op", "structure", "flops", "target")
TRIAL_FIELDS: Final = ("latency_us", "build_ms", "origin", "error")
Row = dict[str, Any]  # keyed by the names of SCHEMA
SCHEMA: Final = pa.schema(
    field.with_nullable(True)  # a null is stored as one, and reading it refuses the file
    for field in (
        MEASUREMENTS.field("workload"),
        *map(WORKLOADS.field, ("name", "op", "structure", "flops", "args")),
        pa.field("descriptors", pa.list_(pa.float64())),
        MEASUREMENTS.field("target"),
        pa.field("context", pa.string()),
        MEASUREMENTS.field("sketch"),
        *map(SKETCHES.field, ("ordinal", "choices", "trace")),
        *map(MEASUREMENTS.field, ("decisions", "outcome", "latency_us", "run_us", "build_ms", "origin")),
        MEASUREMENTS.field("error"),
    )
)


def write_rows(
    path: Path,
    schema: pa.Schema,
    rows: Sequence[Mapping[str, object]],
    key: bytes,
    facts: Mapping[str, object],
) -> None:
    """Write rows to a Parquet file atomically, with `facts` in its metadata at `key`."""
    metadata = {key: json.dumps(facts, sort_keys=True).encode()}
    table = pa.Table.from_pylist(rows, schema=schema.with_metadata(metadata))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    pq.write_table(table, draft, compression="zstd", compression_level=19)
    os.replace(draft, path)


def facts_of(path: Path, key: bytes) -> Any:
    """Return the `facts` that `write_rows` put into a file's metadata at `key`."""
    return json.loads(pq.read_schema(path).metadata[key])


def write_tasks(path: Path, tasks: Iterable[RecordedTask], facts: Mapping[str, object]) -> None:
    """Write tasks to a recording atomically, and `facts` about the hosts to its metadata."""
    rows: list[Row] = []
    for task in tasks:
        task_columns = {name: getattr(task, name) for name in (*TASK_FIELDS, "descriptors")}
        task_columns |= {name: compact_json(getattr(task, name)) for name in ("args", "context")}
        sketch_columns = {
            sketch.key: {
                "ordinal": sketch.ordinal,
                "choices": compact_json(pack_choices(sketch.choices)),
                "trace": sketch.trace,
            }
            for sketch in task.sketches
        }
        rows += [
            {
                **task_columns,
                "sketch": trial.candidate.sketch,
                **sketch_columns[trial.candidate.sketch],
                "decisions": trial.candidate.decisions,
                "outcome": str(trial.outcome),
                "run_us": trial.run_us,
                **{name: getattr(trial, name) for name in TRIAL_FIELDS},
            }
            for trial in task.trials
        ]
    write_rows(path, SCHEMA, rows, FACTS, facts)


def read_tasks(path: Path) -> list[RecordedTask]:
    """Return a recording's tasks. Raises NotFound if missing, InvalidRequest if invalid."""
    _check(path)
    try:
        check_row_group_sizes(path, pq.ParquetFile(path))
        rows = pq.read_table(path, page_checksum_verification=True).to_pylist()
        return [_task(list(group)) for _, group in groupby(rows, key=itemgetter(*TASK))]
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        reason = quote_untrusted(str(error).partition("\n")[0])
        message = f"{path} is incomplete or not a recording: {reason}"
        raise InvalidRequest(message, hint=f"mallorn record MODEL.onnx --out {path}") from None


def read_facts(path: Path) -> Any:
    """Return the facts about the measuring hosts; raises the same errors as `read_tasks`."""
    _check(path)
    return facts_of(path, FACTS)


def _check(path: Path) -> None:
    if not path.is_file():
        raise NotFound(f"there is no recording at {path}", hint=f"mallorn record MODEL.onnx --out {path}")
    try:
        schema = pq.read_schema(path)
        is_recording = schema.names == SCHEMA.names and FACTS in (schema.metadata or {})
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = quote_untrusted(str(error).partition("\n")[0])
        raise InvalidRequest(f"{path} is not a Parquet file: {reason}", hint=f"ls -l {path}") from None
    if not is_recording:
        raise InvalidRequest(f"{path} is not a recording", hint=f"mallorn record MODEL.onnx --out {path}")


def _task(rows: Sequence[Row]) -> RecordedTask:
    first = rows[0]
    sketches = {
        row["sketch"]: Sketch(
            row["sketch"], row["trace"], unpack_choices(read_json(row["choices"])), row["ordinal"]
        )
        for row in {row["sketch"]: row for row in rows}.values()
    }
    bad = next((row for row in rows if len(row["decisions"]) != sketches[row["sketch"]].decision_count), None)
    if bad is not None:
        raise ValueError(
            f"{len(bad['decisions'])} decisions for {sketches[bad['sketch']].decision_count} choices"
        )
    return RecordedTask(
        **{name: first[name] for name in TASK_FIELDS},
        args=_object(first["args"]),
        descriptors=tuple(first["descriptors"]),
        context=_object(first["context"]),
        sketches=tuple(sketches.values()),
        trials=tuple(
            Trial(
                candidate=Candidate(row["sketch"], tuple(row["decisions"])),
                outcome=Outcome(row["outcome"]),
                run_us=tuple(row["run_us"]),
                **{name: row[name] for name in TRIAL_FIELDS},
            )
            for row in rows
        ),
    )


def _object(text: str) -> dict[str, object]:
    value = read_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"{quote_untrusted(text)} must be a JSON object")
    return value
