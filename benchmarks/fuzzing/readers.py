"""All that reads strangers' bytes in a process of ours: each takes one input, or raises MallornError."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.fuzzing import seeds
from mallorn.client.model_upload import ModelUpload
from mallorn.client.onnx_export import find_model_file
from mallorn.core.check_plugin_classes import convert_plugin_errors
from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import MANIFEST, RECORDS, WORKLOADS, read_manifest
from mallorn.costmodels.testing import easy_data
from mallorn.db.dataset.export_files import (
    MEASUREMENT_TABLE,
    SKETCH_TABLE,
    WORKLOAD_TABLE,
    Table,
    find_row_flaw,
    open_export,
)
from mallorn.db.repositories.base import Page
from mallorn.db.tables import CostModelRow
from mallorn.workers.detached.batch_record import read_results
from mallorn.workers.interfaces.model_compiler import BadLine
from mallorn.workers.process.unpack_model import unpack
from mallorn.workers.round.select_cost_model import model_of
from mallorn.workers.shared_schedules.target_folders import PROVENANCE, iterate_databases, read_provenance
from mallorn.workers.shared_schedules.target_folders import TARGET as TARGET_FILE
from mallorn_research.pretraining.read_measurements import read_training_data
from mallorn_research.pretraining.training_data import rows_for
from mallorn_research.tuner_logs import auto_scheduler, metaschedule
from mallorn_research.tuner_logs.auto_scheduler import read_steps
from tests.fixtures.elf_files import METADATA, elf_bytes

Read = Callable[[bytes, Path], object]
#: All kinds of cost models that need no torch, and read what they stored in a way of their own.
FIRST_MODELS: Final = (
    *("xgboost", "lightgbm", "forest", "mlp", "static", "lfbo", "headfirst", "statements"),
    *("residual", "value", "generator", "tuna", "draft", "automl"),
)


@dataclass(frozen=True, slots=True)
class Reader:
    """What reads an input in an empty folder, and whole inputs to begin with."""

    read: Read
    seeds: Callable[[], Sequence[bytes]]


def _target(data: bytes, _folder: Path) -> object:
    return parse_target(data.decode(errors="replace"))


def _cursor(data: bytes, _folder: Path) -> object:
    return Page.decode_cursor(data.decode(errors="replace"), float, str)


def _manifest(data: bytes, folder: Path) -> object:
    file = folder / MANIFEST
    file.write_bytes(data)
    return parse_target(read_manifest(file).target)


def _tenset(data: bytes, folder: Path) -> object:
    file = folder / "log.json"
    file.write_bytes(data)
    problems: list[BadLine] = []
    for record in auto_scheduler.read_records(file, problems.append):
        try:
            read_steps(record.steps)
        except ValueError:  # which training counts, and goes on
            continue
    return problems


def _stock(data: bytes, folder: Path) -> object:
    _files(data, folder, WORKLOADS, RECORDS)
    problems: list[BadLine] = []
    list(metaschedule.read_database(folder, problems.append))
    return problems


def _folder(data: bytes, folder: Path) -> object:
    _files(data, folder, TARGET_FILE, PROVENANCE)
    (folder / RECORDS).touch()
    return [read_provenance(directory) for _, directory in iterate_databases(folder)]


def _batch(data: bytes, folder: Path) -> object:
    file = folder / "results.jsonl"
    file.write_bytes(data)
    return read_results(file)


def _files(data: bytes, folder: Path, first: str, second: str) -> None:
    one, _, other = data.partition(seeds.SPLIT)
    (folder / first).write_bytes(one)
    (folder / second).write_bytes(other)


def _parcel(changed: Table) -> Read:
    """A dataset of which one file is a stranger's."""
    whole = {
        WORKLOAD_TABLE: seeds.workloads(),
        SKETCH_TABLE: seeds.sketches(),
        MEASUREMENT_TABLE: seeds.measurements(),
    }

    def read(data: bytes, folder: Path) -> object:
        for table, content in {**whole, changed: data}.items():
            (folder / table.file).write_bytes(content)
        parcel = open_export(folder)
        return [
            find_row_flaw(row, parcel.widths) for batch in parcel.batches(MEASUREMENT_TABLE) for row in batch
        ]

    return read


def _training(data: bytes, folder: Path) -> object:
    file = folder / "recording.parquet"
    file.write_bytes(data)
    return rows_for(read_training_data(file).tasks, "decisions")


def _archive(data: bytes, folder: Path) -> object:
    return unpack(io.BytesIO(data), folder)


def _first_look(data: bytes, folder: Path) -> object:
    file = folder / "model.onnx"
    file.write_bytes(data)
    return ModelUpload.of(find_model_file(file))


def _model(data: bytes, folder: Path) -> object:
    from mallorn.workers.tvm.network.check_onnx_model import read_model  # which loads TVM

    file = folder / "model.onnx"
    file.write_bytes(data)
    return read_model(file)


def _program(data: bytes, _folder: Path) -> object:
    from mallorn.workers.tvm.programs.allowed_programs import check_program  # which loads TVM

    return check_program(data.decode(errors="replace"))


def _trace(data: bytes, _folder: Path) -> object:
    from mallorn.workers.tvm.programs.allowed_programs import read_trace

    return len(read_trace(data.decode(errors="replace")))


def _library(data: bytes, folder: Path) -> object:
    sys.path.append(str(Path(__file__).parents[2] / "runtime"))  # a package of its own
    from mallorn_runtime import LibraryRefused, read_library_file

    file = folder / "model.so"
    file.write_bytes(data)
    try:
        return read_library_file(file)
    except LibraryRefused as error:
        raise InvalidRequest(str(error), hint="compile the model again") from None
    finally:
        sys.path.pop()


def _cost_model(name: str) -> Reader:
    def read(data: bytes, _folder: Path) -> object:
        with convert_plugin_errors(("cost_model", name)):
            model = model_of(CostModelRow(name=name, blob=data))
            return model.predict(easy_data(20, 1, model.view)[0])

    return Reader(read, lambda: [seeds.cost_model(name)])


READERS: Final[dict[str, Reader]] = {
    "target": Reader(_target, lambda: [seeds.TARGET.encode(), b"llvm -mcpu=haswell -num-cores=4"]),
    "cursor": Reader(_cursor, lambda: [seeds.cursor(1.5, "a")]),
    "manifest": Reader(_manifest, lambda: [seeds.manifest()]),
    "tenset": Reader(_tenset, lambda: [seeds.tenset(*seeds.STEPS)]),
    "batch": Reader(_batch, lambda: [seeds.batch_results()]),
    "stock": Reader(_stock, lambda: [seeds.stock()]),
    "folder": Reader(_folder, lambda: [seeds.folder()]),
    "measurements": Reader(_parcel(MEASUREMENT_TABLE), lambda: [seeds.measurements()]),
    "workloads": Reader(_parcel(WORKLOAD_TABLE), lambda: [seeds.workloads()]),
    "sketches": Reader(_parcel(SKETCH_TABLE), lambda: [seeds.sketches()]),
    "program": Reader(_program, seeds.programs),
    "trace": Reader(_trace, seeds.traces),
    "recording": Reader(_training, lambda: [seeds.recording()]),
    "archive": Reader(_archive, lambda: [seeds.tar(("model.onnx", b"m"), ("weights", b"w" * 600))]),
    "first-look": Reader(_first_look, seeds.models),
    "model": Reader(_model, seeds.models),
    "library": Reader(_library, lambda: [elf_bytes(json.dumps(METADATA).encode())]),
    **{name: _cost_model(name) for name in FIRST_MODELS},
}
