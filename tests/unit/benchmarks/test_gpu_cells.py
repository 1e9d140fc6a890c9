"""Cells of the GPU benchmark: each is measured once, whatever ends the process that measures."""

import json
from pathlib import Path
from unittest.mock import Mock

from benchmarks.gpu.cells import BEGUN, Cells, Row, Unfinished, keep_origin


def counted(calls: list[str]) -> Row:
    calls.append("called")
    return {"us": 1.5}


def test_a_known_cell_is_not_measured_again(tmp_path: Path) -> None:
    calls: list[str] = []
    for _ in range(2):
        Cells(tmp_path / "own.jsonl").measure("product", lambda: counted(calls))
    assert calls == ["called"]
    (row,) = Cells(tmp_path / "own.jsonl").rows()
    assert (row["cell"], row["ok"], row["us"]) == ("product", True, 1.5)


def test_half_a_line_is_dropped_and_the_lines_before_it_stay(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    Cells(file).keep("first", ok=True)
    with file.open("a") as lines:
        lines.write('{"cell": "second", "ok"')
    cells = Cells(file)
    cells.keep("third", ok=True)
    assert [row["cell"] for row in cells.rows()] == ["first", "third"]
    assert [json.loads(line)["cell"] for line in file.read_text().splitlines()] == ["first", "third"]


def test_a_measurement_that_raises_is_a_cell_with_its_error(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "own.jsonl")
    cells.measure("product", Mock(side_effect=ValueError("no such kernel")))
    (row,) = cells.rows()
    assert (row["ok"], row["error"]) == (False, "ValueError: no such kernel")


def test_a_cell_that_ended_its_process_twice_is_kept_as_failed(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    for _ in range(2):
        assert Cells(file).begin("product")
    cells = Cells(file)
    assert not cells.begin("product")
    assert "product" in cells
    assert cells.rows()[0]["ok"] is False


def test_a_measurement_whose_time_was_over_begins_again_as_often_as_it_takes(tmp_path: Path) -> None:
    file, calls = tmp_path / "own.jsonl", list[str]()
    for _ in range(4):
        Cells(file).measure("job", Mock(side_effect=Unfinished))
    assert "job" not in Cells(file)
    Cells(file).measure("job", lambda: counted(calls))
    assert calls == ["called"]


def test_both_files_hold_what_either_held(tmp_path: Path) -> None:
    own, copy = tmp_path / "home" / "part1.jsonl", tmp_path / "out" / "part1.jsonl"
    Cells(own).keep("in the home", ok=True)
    Cells(copy).keep("in the results", ok=True)
    cells = Cells(own, copy)
    cells.keep("new", ok=True)
    names = ["in the home", "in the results", "new"]
    for file in (own, copy):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert [row["cell"] for row in rows if BEGUN not in row] == names


def test_a_measurement_may_tell_of_names_and_seconds(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "own.jsonl")
    cells.measure("compiled", lambda: {"name": "a", "seconds": 3.0, "cell_size": 1})
    (row,) = cells.rows()
    assert (row["cell"], row["name"], row["seconds"]) == ("compiled", "a", 3.0)


def test_the_first_run_of_a_part_stores_where_the_kernels_and_their_times_come_from(tmp_path: Path) -> None:
    origin = tmp_path / "origin.json"
    keep_origin(Cells(tmp_path / "own.jsonl"), origin)
    assert not Cells(tmp_path / "own.jsonl").rows(), "an older preparation wrote no origin"
    origin.write_text(json.dumps({"commit": "0" * 40, "versions": {"tvm": "0.27"}}))
    for _ in range(2):
        keep_origin(Cells(tmp_path / "own.jsonl"), origin)
    (row,) = Cells(tmp_path / "own.jsonl").rows()
    assert (row["cell"], row["commit"], row["versions"]) == ("origin", "0" * 40, {"tvm": "0.27"})
    assert isinstance(row["machine"], dict)
    assert row["machine"]["cores"]
    assert "hostname" not in row["machine"]
