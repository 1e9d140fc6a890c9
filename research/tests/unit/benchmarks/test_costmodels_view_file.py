"""Lowered views that are stored beside frozen rows come back as they were, or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.costmodels.view_file import HEAD, read_view, schema_of, write_view
from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.views import CODE, View
from mallorn.workers.round.feature_lookup import FeatureRows
from mallorn_research.pretraining.training_data import TaskData
from research.tests.unit.pretraining.made_up import SHAPES, task_data

ROWS = "rows-0123456789ab"


def seen(task: TaskData) -> FeatureRows:
    """Some numbers; every fifth candidate could not be seen."""
    rows = np.random.default_rng(0).normal(size=(len(task.candidates), CODE.width)).astype(np.float32)
    known = np.arange(len(rows)) % 5 > 0
    rows[~known] = 0
    return FeatureRows(rows, known)


@pytest.fixture
def tasks() -> list[TaskData]:
    return [task_data(SHAPES[0], 20), task_data(SHAPES[1], 10)]


@pytest.fixture
def file(tasks: list[TaskData], tmp_path: Path) -> Path:
    path = tmp_path / "code.parquet"
    assert write_view(path, CODE, ROWS, ((task, seen(task)) for task in tasks)) == 24
    assert [each.name for each in tmp_path.iterdir()] == ["code.parquet"]
    return path


def test_what_was_seen_is_read_again(file: Path, tasks: list[TaskData]) -> None:
    found = read_view(file, ROWS)
    for task in tasks:
        rows, known = found.see(task)
        np.testing.assert_array_equal(known, seen(task).known)
        np.testing.assert_array_equal(rows, seen(task).rows)


def test_candidates_of_other_tasks_and_targets_are_not_known(file: Path) -> None:
    found = read_view(file, ROWS)
    assert not found.see(task_data(SHAPES[2], 5)).known.any()
    assert not found.see(task_data(SHAPES[0], 5, target="gpu")).known.any()


def test_a_file_of_no_rows_knows_nothing(tmp_path: Path, tasks: list[TaskData]) -> None:
    write_view(tmp_path / "none.parquet", CODE, ROWS, [])
    assert not read_view(tmp_path / "none.parquet", ROWS).see(tasks[0]).known.any()


def rewrite(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(file)), file)


def headed(file: Path, view: View, rows: str) -> None:
    rewrite(file, lambda table: table.replace_schema_metadata(schema_of(view, rows).metadata))


def no_number(table: pa.Table) -> pa.Table:
    flat = pa.array(np.full(len(table) * CODE.width, np.nan, dtype=np.float32))
    return table.set_column(3, table.schema.field("row"), pa.FixedSizeListArray.from_arrays(flat, CODE.width))


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a torn file": (lambda at: at.write_bytes(at.read_bytes()[:-50]), "torn or no Parquet"),
    "an empty file": (lambda at: at.write_bytes(b""), "torn or no Parquet"),
    "another version": (lambda at: headed(at, View("code", 2, (48,)), ROWS), "has version 2 of the view"),
    "another snapshot's": (lambda at: headed(at, CODE, "rows-else"), "is of the rows rows-else"),
    "somebody's Parquet": (
        lambda at: rewrite(at, lambda table: table.replace_schema_metadata(None)), "holds no view"
    ),
    "a head that is none": (
        lambda at: rewrite(at, lambda table: table.replace_schema_metadata({HEAD: b"{"})), "holds no view"
    ),
    "a missing column": (
        lambda at: rewrite(at, lambda table: table.drop_columns(["target"])), "lacks the column target"
    ),
    "a column of another kind": (
        lambda at: rewrite(
            at,
            lambda table: table.set_column(3, "row", pa.array([[1.0]] * len(table), pa.list_(pa.float64()))),
        ),
        "columns of other kinds",
    ),
    "features that are no numbers": (lambda at: rewrite(at, no_number), "are no numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_whole_or_of_other_rows_is_refused(name: str, file: Path) -> None:
    spoil, said = BAD[name]
    spoil(file)
    with pytest.raises(InvalidRequest, match=said) as caught:
        read_view(file, ROWS)
    assert len(caught.value.message.splitlines()) == 1
    assert caught.value.hint


def test_writing_that_breaks_off_leaves_nothing_that_could_be_read(tmp_path: Path) -> None:
    path = tmp_path / "code.parquet"

    def broken() -> Any:
        yield task_data(SHAPES[0], 5), seen(task_data(SHAPES[0], 5))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_view(path, CODE, ROWS, broken())
    assert not path.exists()
