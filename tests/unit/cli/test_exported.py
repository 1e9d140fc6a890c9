"""Reading a schedule directory's manifest before anything is compiled."""

import json
from pathlib import Path
from typing import Any

import pytest

from mallorn.cli.schedule_directory import read_schedule_directory
from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import DATABASE, ScheduleSet

TARGET = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}
RECIPE = {"name": "tuned", "version": 1, "before": [], "after": []}


def write(folder: Path, **changes: Any) -> Path:
    (folder / "manifest.json").write_text(json.dumps({"target": TARGET, "recipe": RECIPE, **changes}))
    return folder


def test_the_manifest_says_what_the_schedules_are_for(tmp_path: Path) -> None:
    exported = read_schedule_directory(write(tmp_path, input_shapes={"x": [1, 8]}), None)
    assert exported.target == parse_target(TARGET)
    assert exported.manifest.recipe.to_stored_json() == RECIPE
    assert exported.manifest.input_shapes == {"x": [1, 8]}


def test_the_same_target_written_otherwise_is_the_same(tmp_path: Path) -> None:
    assert read_schedule_directory(write(tmp_path), "llvm -num-cores=2 -mcpu=znver4").target == parse_target(
        TARGET
    )


def test_schedules_of_another_target_are_refused_naming_both(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"znver4.* not for .*skylake"):
        read_schedule_directory(write(tmp_path), "llvm -mcpu=skylake-avx512 -num-cores=2")


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        read_schedule_directory(tmp_path / "nowhere", None)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"target": 3, "recipe": {}}'])
def test_a_torn_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InvalidRequest, match=r"manifest\.json"):
        read_schedule_directory(tmp_path, None)


def test_logs_of_stock_tvm_need_a_target_and_go_with_the_plain_recipe(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="the target is unknown"):
        read_schedule_directory(tmp_path, None)
    assert read_schedule_directory(tmp_path, json.dumps(TARGET)).manifest.recipe.name == "plain"


def test_a_version_for_busy_machines_is_found_under_the_names_that_tvm_looks_for(tmp_path: Path) -> None:
    for name in DATABASE:
        for version in ScheduleSet:
            (tmp_path / version.file(name)).write_text(version)
    for version in ScheduleSet:
        found = read_schedule_directory(write(tmp_path), None, version)
        scratch = tmp_path / f"scratch-{version}"
        scratch.mkdir()
        records = found.create_database_folder(scratch)
        assert {(records / name).read_text() for name in DATABASE} == {version}
        assert {found.file(name).read_text() for name in DATABASE} == {version}


def test_a_version_that_the_job_did_not_find_is_refused(tmp_path: Path) -> None:
    (tmp_path / ScheduleSet.LOADED.file(DATABASE[0])).write_text("torn")
    with pytest.raises(InvalidRequest, match="no schedules for --set loaded") as refused:
        read_schedule_directory(write(tmp_path), None, ScheduleSet.LOADED)
    assert "--contention" in refused.value.hint
