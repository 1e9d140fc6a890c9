"""Schedule directories: what we write, stock TVM loads; what is torn or foreign is named and left out."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tvm.s_tir.meta_schedule.database import JSONDatabase

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import RECORDS, UNTIMED_SEC, WORKLOADS
from mallorn.workers.tvm.records.tuning_database import Readable, read_database, write_database

OTHER = parse_target({"kind": "llvm", "num-cores": 64}).text


def check_database(directory: str, target: str) -> Readable:
    with TemporaryDirectory() as scratch:
        return read_database(directory, target, scratch)


def edit(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")


def test_stock_tvm_loads_every_record(mlp: Any) -> None:
    database = JSONDatabase(work_dir=mlp.schedules)
    assert len(database) == 3
    assert {record.run_secs[0].value for record in database.get_all_tuning_records()} == {1e-3}


def test_a_record_that_does_not_rebuild_is_left_out_and_told(mlp: Any, tmp_path: Path) -> None:
    first, second, third = mlp.records
    swapped = replace(first, trace="[[], [[0, 1]]]")
    torn = replace(second, trace=second.trace[:100])
    timeless = replace(third, run_secs=[1e10])
    skipped = write_database(str(tmp_path), mlp.target, [swapped, first, torn, timeless])
    assert [each.index for each in skipped] == [0, 2, 3]
    assert all(each.error for each in skipped)
    assert len(JSONDatabase(work_dir=str(tmp_path))) == 1


def test_stock_tvm_takes_a_schedule_that_was_not_timed_and_any_timed_one_before_it(
    mlp: Any, tmp_path: Path
) -> None:
    untimed = replace(mlp.records[0], run_secs=[UNTIMED_SEC])
    slow = replace(mlp.records[0], run_secs=[100.0])
    assert write_database(str(tmp_path), mlp.target, [untimed, slow]) == []
    database = JSONDatabase(work_dir=str(tmp_path))
    workload = database.get_all_tuning_records()[0].workload
    first, second = database.get_top_k(workload, 3)
    assert (first.run_secs[0].value, second.run_secs[0].value) == (100.0, UNTIMED_SEC)


def test_writing_again_replaces(mlp: Any, tmp_path: Path) -> None:
    for records in (mlp.records, mlp.records[:1]):
        write_database(str(tmp_path), mlp.target, records)
    assert len(JSONDatabase(work_dir=str(tmp_path))) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [RECORDS, WORKLOADS]


def test_good_directory_has_no_problems(mlp: Any) -> None:
    assert check_database(mlp.schedules, mlp.target) == (3, [])


def test_a_torn_line_is_named_and_the_others_are_used(mlp: Any, exported: Path, tmp_path: Path) -> None:
    edit(exported / RECORDS, lambda lines: [lines[0], lines[1][:50], lines[2]])
    found = read_database(str(exported), mlp.target, str(tmp_path))
    assert found.records == 2
    assert [(problem.file, problem.line) for problem in found.problems] == [(RECORDS, 2)]
    assert len(JSONDatabase(work_dir=str(tmp_path))) == 2


def test_a_torn_workload_costs_its_own_records_only(mlp: Any, exported: Path) -> None:
    edit(exported / WORKLOADS, lambda lines: [lines[0][:-40], *lines[1:]])
    found = check_database(str(exported), mlp.target)
    assert found.records == 2
    assert [(problem.file, problem.line) for problem in found.problems] == [
        (WORKLOADS, 1),
        (RECORDS, 1),
    ]


def test_a_line_that_is_another_kind_of_json_is_named(mlp: Any, exported: Path) -> None:
    edit(exported / RECORDS, lambda lines: ["{}", "[7, []]", "null", *lines])
    found = check_database(str(exported), mlp.target)
    assert [problem.line for problem in found.problems] == [1, 2, 3]
    assert found.records == 3


def test_another_target_s_directory_is_refused(mlp: Any) -> None:
    with pytest.raises(InvalidRequest, match="are for target") as caught:
        check_database(mlp.schedules, OTHER)
    assert "--target" in caught.value.hint


def test_another_target_s_records_are_left_out_where_no_manifest_tells(mlp: Any, exported: Path) -> None:
    (exported / "manifest.json").unlink()
    found = check_database(str(exported), OTHER)
    assert found.records == 0
    assert all("another target" in problem.error for problem in found.problems)


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"target": 3})])
def test_a_broken_manifest_is_refused(mlp: Any, exported: Path, text: str) -> None:
    (exported / "manifest.json").write_text(text)
    with pytest.raises(InvalidRequest, match=r"manifest\.json"):
        check_database(str(exported), mlp.target)


def test_a_directory_without_schedules_is_not_found(mlp: Any, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=str(tmp_path)) as caught:
        check_database(str(tmp_path), mlp.target)
    assert caught.value.hint.startswith("mallorn tune")


def test_what_this_process_wrote_is_not_rebuilt_to_be_read(
    mlp: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_database(str(tmp_path), mlp.target, mlp.records)
    monkeypatch.setattr(
        "mallorn.workers.tvm.records.tuning_database.apply_trace", lambda *_: pytest.fail("it was rebuilt")
    )
    with TemporaryDirectory() as scratch:
        assert read_database(str(tmp_path), mlp.target, scratch) == (3, [])
        assert len(JSONDatabase(work_dir=scratch)) == 3


def test_what_was_changed_since_then_is_read_with_care(mlp: Any, tmp_path: Path) -> None:
    write_database(str(tmp_path), mlp.target, mlp.records)
    edit(tmp_path / RECORDS, lambda lines: [lines[0], lines[1][:50], lines[2]])
    assert check_database(str(tmp_path), mlp.target).records == 2
