"""Read an untrusted exported dataset in a child process, and check its rows.

A row is left out if its program or trace is not allowed, or if its key does not match them.
The other columns of a workload's row are computed anew from its program.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import tvm

from mallorn.core.values.candidate import ChoiceKind, unpack_choices
from mallorn.db.dataset import export_files
from mallorn.workers.interfaces.model_compiler import DatasetRows, OpenedDataset
from mallorn.workers.interfaces.tensor_arguments import pack_arguments
from mallorn.workers.tvm.network.extract_tasks import describe_task
from mallorn.workers.tvm.programs.allowed_programs import read_trace
from mallorn.workers.tvm.programs.parsed_program_cache import TILES, parse_module
from mallorn.workers.tvm.programs.workload_key import rename_blocks_canonically
from mallorn.workers.tvm.records.tuning_database import BROKEN, describe_error
from mallorn.workers.tvm.space.sketches import sketch_key

ANOTHER: Final = "another key than its text has"
MOST_SKETCHES: Final = 1 << 10  # per program
_KINDS: Final = {
    **dict.fromkeys(TILES, ChoiceKind.TILE),
    "SampleCategorical": ChoiceKind.CATEGORICAL,
    "SampleComputeLocation": ChoiceKind.LOCATION,
}
_open: dict[str, export_files.DatasetReader] = {}
_batches: dict[str, Iterator[list[export_files.Row]]] = {}


def open_dataset(directory: str) -> OpenedDataset:
    reader = export_files.open_export(Path(directory))
    _batches.clear()
    _open["reader"] = reader
    return OpenedDataset(reader.rows, reader.widths)


def next_rows(table: str, size: int) -> DatasetRows | None:
    if table not in _batches:
        (schema,) = [item for item in export_files.TABLES if item.name == table]
        _batches[table] = _open["reader"].batches(schema, size)
    batch, check = next(_batches[table], None), _CHECKS.get(table)
    if batch is None:
        return None
    if check is None:
        return DatasetRows(batch, {})
    rows, refusals = [], {}
    for row in batch:
        try:
            rows.append(check(row))
        except BROKEN as error:
            refusals[row["key"]] = describe_error(error)
    return DatasetRows(rows, refusals)


def check_workload(row: export_files.Row) -> export_files.Row:
    """Return a workload's row with the other columns recomputed from its program. Raises
    ValueError if the key is wrong, an error of BROKEN if the program is invalid."""
    task = describe_task(rename_blocks_canonically(parse_module(row["tir"])), row["name"], weight=1)
    if task.key != row["key"]:
        raise ValueError(ANOTHER)
    return row | {
        "op": task.op,
        "structure": task.structure,
        "flops": task.flops,
        "tir": task.tir,
        "args": json.dumps(pack_arguments(task.args)),
        "features": json.dumps({"extents": task.extents}),
        "tvm_version": tvm.__version__,
    }


def check_sketch(row: export_files.Row) -> export_files.Row:
    """Return the row of a sketch unchanged. Raises ValueError if its key or choices do not
    match its trace, or an error of BROKEN if the trace is invalid."""
    steps = read_trace(row["trace"])
    if sketch_key(row["trace"]) != row["key"]:
        raise ValueError(ANOTHER)
    widths = [(_KINDS[kind], step[0] if kind in TILES else 1) for kind, _, step, _ in steps if kind in _KINDS]
    choices = unpack_choices(json.loads(row["choices"]))
    has_own_choices = [(choice.kind, choice.width) for choice in choices] == widths
    if not has_own_choices or not 0 <= row["ordinal"] < MOST_SKETCHES:
        raise ValueError("other choices than its trace has")
    return row


_CHECKS: Final[dict[str, Callable[[export_files.Row], export_files.Row]]] = {
    export_files.WORKLOAD_TABLE.name: check_workload,
    export_files.SKETCH_TABLE.name: check_sketch,
}
