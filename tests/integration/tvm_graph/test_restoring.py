"""What was exported is imported elsewhere as the same workloads and candidates."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import MANIFEST, RECORDS, UNTIMED_SEC
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import Workloads
from mallorn.db.session import Database
from mallorn.workers.interfaces.model_compiler import BadLine
from mallorn.workers.shared_schedules.import_records import load_tuning_export
from mallorn.workers.tvm.records.tuning_database import read_schedule_directory, write_database
from mallorn.workers.tvm.space.rebuild_schedule import full_trace
from mallorn.workers.tvm.space.sketches import design_space
from tests.fixtures.command_line import mallorn
from tests.fixtures.database import BOTH


def test_records_are_taken_apart_and_rebuild_to_themselves(mlp: Any) -> None:
    found = read_schedule_directory(mlp.schedules, mlp.target)
    assert found.problems == []
    tasks = {task.key: task for task in mlp.tasks}
    traces = [json.loads(record.trace) for record in mlp.records]
    for record in found.records:
        task, sketch = record.task, record.sketch
        assert replace(tasks.pop(task.key), name="", weight=1) == task
        assert sketch in [replace(known, ordinal=0) for known in design_space(task.tir, mlp.target)]
        assert json.loads(full_trace(task.tir, mlp.target, sketch.trace, record.decisions) or "") in traces
    assert tasks == {}


@BOTH
def test_an_export_is_stored_once_under_the_keys_of_its_workloads(
    mlp: Any, exported: Path, database: Database
) -> None:
    problems: list[BadLine] = []
    assert load_tuning_export(database, exported, problems.append).added == 3
    again = load_tuning_export(
        database, Path(shutil.copytree(exported, exported.with_name("copy"))), problems.append
    )
    assert (again.added, again.known, problems) == (0, 3, [])
    with database.transaction() as session:
        target = Targets(session).ensure(parse_target(mlp.target)).id
        for task in mlp.tasks:
            workload = Workloads(session).ids([task.key])[task.key]
            [brought] = Trials(session).best(workload, target, imported=True)
            assert brought.latency_us == pytest.approx(1000)
            assert Trials(session).best(workload, target) == []


def test_a_torn_line_costs_its_own_schedule(exported: Path, database: Database) -> None:
    first, *rest = (exported / RECORDS).read_text().splitlines()
    (exported / RECORDS).write_text("\n".join([first[:60], *rest]) + "\n")
    problems: list[BadLine] = []
    assert load_tuning_export(database, exported, problems.append).added == 2
    assert [(problem.file, problem.line) for problem in problems] == [(str(exported / RECORDS), 1)]


def test_a_schedule_of_an_export_that_was_not_timed_is_told_and_brings_no_time(
    mlp: Any, exported: Path, database: Database
) -> None:
    untimed, *timed = mlp.records
    write_database(str(exported), mlp.target, [replace(untimed, run_secs=[UNTIMED_SEC]), *timed])
    problems: list[BadLine] = []
    assert load_tuning_export(database, exported, problems.append).added == 2
    assert [(problem.line, problem.error) for problem in problems] == [(1, "the schedule was not timed")]


def test_an_export_that_nobody_measured_brings_nothing(exported: Path, database: Database) -> None:
    manifest = json.loads((exported / MANIFEST).read_text())
    (exported / MANIFEST).write_text(json.dumps(manifest | {"mode": "zero-shot"}))
    with pytest.raises(InvalidRequest, match="were not measured"):
        load_tuning_export(database, exported, [].append)


def test_the_import_says_how_to_have_the_schedules_again(mlp: Any, exported: Path, tmp_path: Path) -> None:
    result = mallorn("dataset", "import", str(exported), "--data", str(tmp_path / "my data"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("3 added, 0 known already; skipped: none")
    again = f"mallorn tune MODEL --trials 0 --target '{mlp.target}' --data '{tmp_path / 'my data'}'"
    assert again in result.stderr
