"""Schedules of a job that ends early: what it tried, and the defaults for the rest."""

import json
from pathlib import Path
from typing import Any

from benchmarks.prefixes import complete
from mallorn.core.values.manifest import RECORDS, WORKLOADS


def directory(path: Path, *rows: tuple[str, str]) -> Path:
    path.mkdir()
    write(path / WORKLOADS, [[workload, "a program"] for workload, _ in rows])
    write(path / RECORDS, [[index, record] for index, (_, record) in enumerate(rows)])
    return path


def write(file: Path, lines: list[Any]) -> None:
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def schedules(path: Path) -> dict[str, str]:
    workloads, records = (
        [json.loads(line) for line in (path / name).read_text().splitlines()] for name in (WORKLOADS, RECORDS)
    )
    return {workloads[index][0]: record for index, record in records}


def test_a_task_without_a_trial_gets_the_schedule_of_a_job_without_trials(tmp_path: Path) -> None:
    tried = directory(tmp_path / "tried", ("b", "found"))
    complete(tried, directory(tmp_path / "zero", ("a", "default"), ("b", "default"), ("c", "default")))
    assert schedules(tried) == {"b": "found", "a": "default", "c": "default"}
