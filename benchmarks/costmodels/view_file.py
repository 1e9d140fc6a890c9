"""A view that takes a compiler, stored beside the rows it is of: one Parquet file a view."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import Matrix
from mallorn.costmodels.views import VIEWS, View
from mallorn.workers.round.feature_lookup import FeatureRows
from mallorn_research.pretraining.training_data import TaskData

HEAD: Final = b"mallorn.view"
AGAIN: Final = "python -m benchmarks.costmodels.freeze DATA_DIR OUT"
Key = tuple[str, str, str]  # workload, target, Candidate.key


@dataclass(frozen=True, slots=True)
class ViewFile:
    """The rows of a view by their candidates."""

    view: View
    places: Mapping[Key, int]
    rows: Matrix

    def see(self, task: TaskData) -> FeatureRows:
        """What is stored of the candidates of a task; the others are not known."""
        keys = [(task.workload, task.target, candidate.key) for candidate in task.candidates]
        at = np.array([self.places.get(key, -1) for key in keys], dtype=np.int64)
        rows = np.zeros((len(at), self.view.width), dtype=np.float32)
        rows[at >= 0] = self.rows[at[at >= 0]]
        return FeatureRows(rows, at >= 0)


def schema_of(view: View, snapshot: str) -> pa.Schema:
    """The columns of a view's file, and what its head says of it."""
    head = {"view": view.name, "version": view.version, "width": view.width, "snapshot": snapshot}
    names = [(name, pa.string()) for name in ("workload", "target", "candidate")]
    return pa.schema([*names, ("row", pa.list_(pa.float32(), view.width))], {HEAD: json.dumps(head)})


def path_of(directory: Path, view: str) -> Path:
    """Where a view of an export is stored."""
    return directory / f"{view}.parquet"


def write_view(path: Path, view: View, snapshot: str, seen: Iterable[tuple[TaskData, FeatureRows]]) -> int:
    """Write what could be seen, task by task, into a file that appears when it is complete."""
    schema, written, draft = schema_of(view, snapshot), 0, path.with_suffix(".tmp")
    with pq.ParquetWriter(draft, schema, compression="zstd", write_page_checksum=True) as writer:
        for task, found in seen:
            writer.write_table(_table(schema, task, found))
            written += int(found.known.sum())
    os.replace(draft, path)
    return written


def read_view(path: Path, snapshot: str) -> ViewFile:
    """Raises InvalidRequest, with one sentence, for a file that is torn, of other rows or another version."""
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        view = _checked(path, file.schema_arrow, snapshot)
        table = file.read()
    except (pa.ArrowException, OSError) as error:
        said = str(error).partition("\n")[0]
        raise InvalidRequest(f"{path} is torn or no Parquet: {said}", hint=AGAIN) from None
    names = (table.column(name).to_pylist() for name in ("workload", "target", "candidate"))
    places = {key: at for at, key in enumerate(zip(*names, strict=True))}
    flat = table.column("row").combine_chunks().flatten().to_numpy(zero_copy_only=False)
    rows = np.asarray(flat, dtype=np.float32).reshape(-1, view.width)
    if not np.isfinite(rows).all():
        raise InvalidRequest(f"{path} has features that are no numbers", hint=AGAIN)
    return ViewFile(view, places, rows)


def _checked(path: Path, found: pa.Schema, snapshot: str) -> View:
    try:
        head = json.loads((found.metadata or {})[HEAD])
        view = VIEWS[head["view"]]
    except (KeyError, TypeError, ValueError):
        raise InvalidRequest(f"{path} holds no view of candidates", hint=AGAIN) from None
    if (head["version"], head["width"]) != (view.version, view.width):
        raise InvalidRequest(
            f"{path} has version {head['version']} of the view {view.name}, this Mallorn reads "
            f"{view.version}",
            hint=AGAIN,
        )
    if head["snapshot"] != snapshot:
        raise InvalidRequest(f"{path} is of the rows {head['snapshot']}, not of {snapshot}", hint=AGAIN)
    wanted = schema_of(view, snapshot)
    if not wanted.equals(found):
        missing = ", ".join(name for name in wanted.names if name not in found.names)
        wrong = f"lacks the column {missing}" if missing else "has columns of other kinds"
        raise InvalidRequest(f"{path} {wrong}", hint=AGAIN)
    return view


def _table(schema: pa.Schema, task: TaskData, found: FeatureRows) -> pa.Table:
    lines = np.flatnonzero(found.known).tolist()
    flat = pa.array(np.ascontiguousarray(found.rows[lines]).ravel(), pa.float32())
    return pa.table(
        [
            pa.array([task.workload] * len(lines), pa.string()),
            pa.array([task.target] * len(lines), pa.string()),
            pa.array([task.trials[at].candidate.key for at in lines], pa.string()),
            pa.FixedSizeListArray.from_arrays(flat, found.rows.shape[1]),
        ],
        schema=schema,
    )
