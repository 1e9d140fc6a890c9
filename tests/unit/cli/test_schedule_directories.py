"""`mallorn schedules diff` and prune's files, and directories at fsspec URLs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fsspec
import pytest

from mallorn.cli import schedules
from mallorn.cli.schedules import open_directory
from mallorn.core.errors import InvalidRequest, StoreAway
from mallorn.core.values.manifest import RECORDS, UNTIMED_SEC, WORKLOADS
from mallorn.workers.shared_schedules.target_folders import (
    PROVENANCE,
    TARGET,
    read_records,
    remove_records,
)
from tests.fixtures.answers import data, mallorn, refused
from tests.unit.cli.test_exported import RECIPE

LLVM = {"kind": "llvm", "num-cores": 2}
MEASURED_ON = {"host_class": "h", "tvm_version": "1", "threads": 2, "evaluator": {}}


def write(root: Path, *records: tuple[str, str, float]) -> Path:
    """A shared folder: each record is a workload's name, its schedule and its seconds."""
    directory = root / "conv2d"
    directory.mkdir(parents=True)
    (root / TARGET).write_text(json.dumps(LLVM))
    names = list(dict.fromkeys(name for name, *_ in records))
    lines = [[names.index(name), [[[trace], []], [sec], LLVM, []]] for name, trace, sec in records]
    origin = {"dataset": "d", "row": 1, "created_at": 0.0, "origin": "o", "measured_on": MEASURED_ON}
    for file, values in (
        (WORKLOADS, [[name, f"program of {name}"] for name in names]),
        (RECORDS, lines),
        (PROVENANCE, [origin | {"name": name} for name, *_ in records]),
    ):
        (directory / file).write_text("".join(json.dumps(value) + "\n" for value in values))
    return root


def test_a_diff_lists_what_was_added_removed_or_changed(tmp_path: Path) -> None:
    before = write(tmp_path / "a", ("same", "x", 1e-3), ("gone", "x", 1e-3), ("other", "x", 2e-3))
    after = write(tmp_path / "b", ("other", "y", 1e-3), ("new", "x", UNTIMED_SEC), ("same", "x", 1e-3))
    rows = data(mallorn("schedules", "diff", before, after, "--json"))
    assert [(row["change"], row["name"], row["before_us"], row["after_us"]) for row in rows] == [
        ("removed", "gone", 1000.0, None),
        ("added", "new", None, None),
        ("changed", "other", 2000.0, 1000.0),
    ]
    assert "the schedules are the same" in mallorn("schedules", "diff", before, before).stderr


def test_the_record_that_counts_is_the_fastest(tmp_path: Path) -> None:
    before = write(tmp_path / "a", ("w", "x", 1e-3), ("w", "y", 2e-3))
    after = write(tmp_path / "b", ("w", "y", 2e-3), ("w", "x", 1e-3))
    assert data(mallorn("schedules", "diff", before, after, "--json")) == []


def test_removed_records_take_their_provenance_with_them_and_the_others_stay(tmp_path: Path) -> None:
    root = write(tmp_path / "a", ("w0", "x", 1e-3), ("w1", "x", 1e-3), ("w1", "y", 2e-3), ("w2", "x", 1e-3))
    records = read_records(root)
    remove_records([records[0], records[2]])
    remaining = read_records(root)
    assert [(record.workload, record.name, record.trace) for record in remaining] == [
        (record.workload, record.name, record.trace) for record in (records[1], records[3])
    ]
    assert (root / "conv2d" / RECORDS).read_bytes().count(b"\n") == 2
    remove_records(remaining)
    assert read_records(root) == []
    assert list((root / "conv2d").iterdir()) == []


def test_an_export_of_a_job_is_read_as_its_manifest_says(tmp_path: Path) -> None:
    root = write(tmp_path / "a", ("w", "x", 1e-3))
    (root / TARGET).unlink()
    (root / "conv2d" / PROVENANCE).unlink()
    workloads = [{"task": "fused", "workload": "w", "weight": 1}]
    manifest = {"target": LLVM, "recipe": RECIPE, "workloads": workloads, "measured_on": MEASURED_ON}
    (root / "conv2d" / "manifest.json").write_text(json.dumps(manifest))
    [record] = read_records(root)
    assert (record.name, record.measured_on.host_class) == ("fused", "h")


@pytest.mark.parametrize("line", ["torn", "[]", "[7, [[], [1.0], {}, []]]", '[0, [[], ["x"], {}, []]]', "3"])
def test_a_line_that_is_no_record_is_named(line: str, tmp_path: Path) -> None:
    root = write(tmp_path / "a", ("w", "x", 1e-3))
    (root / "conv2d" / RECORDS).write_text(line + "\n")
    with pytest.raises(InvalidRequest, match="line 1: the line is not"):
        read_records(root)


@pytest.fixture
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.rm("/team", recursive=True)


def test_a_directory_at_a_url_is_changed_there(memory: Any, tmp_path: Path) -> None:
    url = "memory://team/schedules"
    with open_directory(url, writes=True, create=True) as folder:
        write(folder, ("w", "x", 1e-3), ("v", "x", 1e-3))
    with open_directory(url, writes=True) as folder:
        remove_records(read_records(folder)[:1])
        (folder / TARGET).rename(folder / "conv2d" / TARGET)
    with open_directory(url) as folder:
        assert [line.name for line in read_records(folder)] == ["v"]
    assert not memory.exists("/team/schedules/target.json")
    assert data(mallorn("schedules", "diff", url, url, "--json")) == []


def test_a_file_url_is_a_directory_here(tmp_path: Path) -> None:
    root = write(tmp_path / "a", ("w", "x", 1e-3))
    with open_directory(f"file://{root}") as folder:
        assert [line.name for line in read_records(folder)] == ["w"]


def test_what_fails_in_the_block_changes_nothing_there(memory: Any) -> None:
    url = "memory://team/schedules"
    memory.pipe_file("/team/schedules/a", b"1")

    def fail_after_a_change() -> None:
        with open_directory(url, writes=True) as folder:
            (folder / "a").write_bytes(b"2")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_a_change()
    assert memory.cat_file("/team/schedules/a") == b"1"


@pytest.mark.parametrize("place", ["nowhere", "memory://nowhere"])
def test_a_place_without_schedules_is_refused(place: str) -> None:
    refused(mallorn("schedules", "diff", place, place), "nowhere", "mallorn schedules export")


def test_a_store_that_fails_is_away(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe_file("/team/schedules/a", b"1")
    monkeypatch.setattr(type(memory), "cat_file", Mock(side_effect=PermissionError("no key")))
    with (
        pytest.raises(StoreAway, match="PermissionError: no key"),
        open_directory("memory://team/schedules"),
    ):
        pass


@pytest.mark.parametrize("limit", ["MOST_FILES", "MOST_BYTES"])
def test_a_directory_at_a_url_is_bounded(limit: str, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, limit, 3)
    for number in range(2):
        memory.pipe_file(f"/team/schedules/{number}", b"x")
    with open_directory("memory://team/schedules") as folder:
        assert len(list(folder.iterdir())) == 2
    for number in range(4):
        memory.pipe_file(f"/team/schedules/{number}", b"x")
    with pytest.raises(InvalidRequest, match="holds more than"), open_directory("memory://team/schedules"):
        pass
