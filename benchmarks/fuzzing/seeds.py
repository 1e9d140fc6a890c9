"""Whole inputs of every reader, small and always the same: what hostile ones are made from."""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.mutant_files import MODELS
from mallorn.core.outcomes import Outcome
from mallorn.core.registry import resolve
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import Candidate, Choice, ChoiceKind, Sketch, pack_choices
from mallorn.core.values.trial import Trial
from mallorn.costmodels.testing import easy_data
from mallorn.db.bundled.load_bundled import FOLDER, bundled_rows_path
from mallorn.db.dataset.export_files import MEASUREMENT_TABLE, SKETCH_TABLE, WORKLOAD_TABLE, Table
from mallorn.db.repositories.base import Page
from mallorn.workers.detached.run_batch import FORMAT
from mallorn.workers.shared_schedules.target_folders import SharedRecord

TARGET: Final = parse_target({"kind": "llvm", "mcpu": "haswell", "num-cores": 2}).text
SPLIT: Final = b"\n--8<--\n"  # between the files of an input that has several
SKETCH: Final = Sketch("tiled", "[]", (Choice(ChoiceKind.TILE, 2, 4, 4, suggested=(2, 2)),), 1)
ROW: Final[Mapping[str, Any]] = {
    "dataset": "d" * 32,
    "row": 1,
    "kind": "trial",
    "workload": "w0",
    "op": "matmul",
    "flops": 1e6,
    "target": TARGET,
    "host_class": "a host",
    "tvm_version": "0.27.0",
    "threads": 2,
    "evaluator": "{}",
    "sketch": "tiled",
    "decisions": [2, 2],
    "slot": 0,
    "outcome": "ok",
    "run_us": [5.0, 6.0],
    "latency_us": 5.5,
    "error": None,
    "origin": "ga",
    "predicted": 0.5,
    "build_ms": 1.0,
    "run_ms": 1.0,
    "model": None,
    "created_at": 1.7e9,
}
WORKLOAD: Final[Mapping[str, Any]] = {
    "key": "w0",
    "name": "dense",
    "op": "matmul",
    "structure": "s",
    "flops": 1e6,
    "tir": "{}",
    "args": "[]",
    "features": '{"extents":[4,4]}',
    "tvm_version": "0.27.0",
}
STORED: Final[Mapping[str, Any]] = {
    "key": SKETCH.key,
    "trace": SKETCH.trace,
    "choices": json.dumps(pack_choices(SKETCH.choices)),
    "ordinal": 1,
    "space": "tvm/1",
    "tvm_version": "0.27.0",
}


def parquet(table: pa.Table) -> bytes:
    """A table as a file, uncompressed, so that what is changed in it reaches the reader."""
    out = io.BytesIO()
    pq.write_table(table, out, compression="none", write_page_checksum=False)
    return out.getvalue()


def exported(table: Table, *rows: Mapping[str, Any], **head: object) -> bytes:
    """A file of an exported dataset."""
    schema = table.with_head({"name": "s", "rows": 1, **head})
    return parquet(pa.Table.from_pylist([dict(row) for row in rows], schema=schema))


def measurements(**changes: Any) -> bytes:
    return exported(MEASUREMENT_TABLE, {**ROW, **changes})


def workloads(**changes: Any) -> bytes:
    return exported(WORKLOAD_TABLE, {**WORKLOAD, **changes})


def sketches(**changes: Any) -> bytes:
    return exported(SKETCH_TABLE, {**STORED, **changes})


def recording(**changes: Any) -> bytes:
    """A recorded task in a file."""
    from mallorn_research.replay.recording_file import RecordedTask, write_tasks

    trial = Trial(
        Candidate("tiled", (2, 2)), Outcome.OK, latency_us=5.5, origin="ga", build_ms=1.0, run_us=(5.0, 6.0)
    )
    facts = {"workload": "w0", "name": "dense", "op": "matmul", "structure": "s", "flops": 1e6}
    place = {"target": TARGET, "context": {"host_class": "a host"}, "args": {}}
    known: dict[str, Any] = {"descriptors": (1.0,) * 9, "sketches": (SKETCH,), "trials": (trial,)}
    with TemporaryDirectory() as folder:
        path = Path(folder, "r.parquet")
        write_tasks(path, [RecordedTask(**{**facts, **place, **known, **changes})], {})
        return parquet(pq.read_table(path))


def tar(*members: tuple[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    """An archive as clients send it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, content in members:
            head = tarfile.TarInfo(name)
            head.size = len(content)
            archive.addfile(head, io.BytesIO(content))
    return out.getvalue()


@cache
def cost_model(name: str) -> bytes:
    """A small fitted model."""
    model = resolve("cost_model", name)()
    model.fit(*easy_data(60, 0, model.view), seed=0)
    return bytes(model.save())


def models() -> list[bytes]:
    return [build().SerializeToString() for build in MODELS]


def batch_results() -> bytes:
    device = {"name": "n", "host_id": "h", "host_class": "c", "threads": 1, "tvm_version": "0.27"}
    header = {"format": FORMAT, "batch": "0123456789abcdef", "digest": "d", "device": device}
    result = {"key": "1-0", "outcome": "ok", "run_us": [2.5], "run_ms": 20.0}
    return b"".join(json.dumps(line).encode() + b"\n" for line in (header, {"start": "1-0"}, result))


def manifest(**changes: Any) -> bytes:
    recipe = {"name": "tuned", "version": 1, "steps": []}
    told = {"job": "j", "target": json.loads(TARGET), "recipe": recipe, "inputs": [], **changes}
    return json.dumps(told).encode()


def tenset(*steps: Sequence[Any], target: str = "llvm -mcpu=core-avx2") -> bytes:
    task = ['["product"]', target, [16, 64, 64, 0, 0, 0, 0, 0], "", 1, []]
    line = {"i": [task, [[], list(steps)]], "r": [[1e-3], 0, 0.1, 1714270206], "v": "v0.6"}
    return json.dumps(line).encode() + b"\n"


STEPS: Final = (
    ["CHW", 2, "local"],
    ["SP", 2, 0, 512, [1, 2, 2], 1],
    ["RE", 2, [0, 2, 1, 3]],
    ["FSP", 3, 0, 1, 2],
    ["CA", 2, 3, 1],
    ["FU", 3, [0, 1]],
    ["AN", 3, 0, 3],
    ["PR", 2, 0, "auto_unroll_max_step$64"],
)


def stock(trace: Any = ((), ()), seconds: Any = (1e-3,), index: Any = 0) -> bytes:
    """A program and a record, as stock MetaSchedule's two files have them."""
    programs = json.dumps(["1", "e30="]).encode()
    return programs + SPLIT + json.dumps([index, [trace, list(seconds), json.loads(TARGET), []]]).encode()


def folder(**changes: Any) -> bytes:
    """The target and the provenance of a folder of schedules."""
    measured = {"dataset": "d", "row": 1, "created_at": 1.7e9, "origin": "ga", "name": "dense"}
    line = SharedRecord.model_validate({**measured, "measured_on": {}, **changes})
    return TARGET.encode() + SPLIT + line.model_dump_json().encode()


def cursor(*position: str | float) -> bytes:
    return Page.encode_cursor(*position).encode()


@cache
def programs() -> list[bytes]:
    """Programs that were measured, the smallest first."""
    return _bundled(WORKLOAD_TABLE, "tir")


@cache
def traces() -> list[bytes]:
    """Sketches that were measured, the smallest first."""
    return _bundled(SKETCH_TABLE, "trace")


def _bundled(table: Table, column: str) -> list[bytes]:
    texts = pq.read_table(bundled_rows_path(FOLDER) / table.file, columns=[column]).column(column).to_pylist()
    return sorted((text.encode() for text in texts), key=len)[::20]
