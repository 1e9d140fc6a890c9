"""Logs of other tuners: what they say is read, what is torn is named by file and line, and passed over."""

import json
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.errors import NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.values.manifest import RECORDS, WORKLOADS
from mallorn.workers.interfaces.model_compiler import BadLine
from mallorn.workers.shared_schedules.import_records import find_databases
from mallorn_research.tuner_logs.auto_scheduler import read_records
from mallorn_research.tuner_logs.foreign_records import ForeignTrial
from mallorn_research.tuner_logs.metaschedule import read_database
from mallorn_research.tuner_logs.store_tuner_logs import find_logs

TARGET = "llvm -keys=cpu -link-params=0 -mcpu=skylake-avx512 -model=platinum-8272"
TASK = '["d7b65649a4dd54becea0a52aabbc5af5", 1, 1000, 1, 1000]'
STEPS = [["CI", 5], ["SP", 3, 0, 1000, [10, 1, 2], 1], ["PR", 3, 0, "auto_unroll_max_step$64"]]


def measured(costs: list[float], code: int = 0) -> str:
    """A line as auto_scheduler writes it."""
    task = [TASK, TARGET, [8, 64, 64, 0, 0, 0, 0, 0], "", 2, []]
    return json.dumps({"i": [task, [[], STEPS]], "r": [costs, code, 0.5, 1616105000], "v": "v0.6"})


def metaschedule(directory: Path, records: list[Any]) -> Path:
    """A database of one program."""
    directory.mkdir(parents=True)
    (directory / WORKLOADS).write_text(json.dumps(["123", "UHJvZ3JhbQ=="]) + "\n")
    (directory / RECORDS).write_text("".join(json.dumps(record) + "\n" for record in records))
    return directory


def read(reader: Any, path: Path) -> tuple[list[ForeignTrial], list[BadLine]]:
    problems: list[BadLine] = []
    return list(reader(path, problems.append)), problems


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "([d7b6,1,1000],llvm).json"


def test_a_measure_record_tells_task_target_steps_and_times(log: Path) -> None:
    log.write_text(f"# made by hand\n{measured([1e-3, 2e-3])}\n\n")
    [record], problems = read(read_records, log)
    assert problems == []
    assert (record.task, record.target, json.loads(record.steps)) == (TASK, TARGET, STEPS)
    assert record.run_us == pytest.approx((1000.0, 2000.0))
    assert (record.outcome, record.failure, record.measured_at) == (Outcome.OK, None, 1616105000.0)


CODES = {
    1: "build_error",
    3: "build_error",
    4: "run_error",
    5: "wrong_result",
    6: "build_timeout",
    7: "run_timeout",
}


@pytest.mark.parametrize("code", CODES)
def test_failure_codes_become_outcomes(code: int, log: Path) -> None:
    log.write_text(measured([1e10], code))
    [record], _ = read(read_records, log)
    assert (record.outcome, record.failure, record.run_us) == (CODES[code], str(code), ())


BAD_RECORDS = {
    "torn": measured([1e-3])[:-40],
    "no JSON": "DLCO",
    "a list": "[1, 2]",
    "zero": measured([0.0]),
    "negative": measured([1e-3, -1e-3]),
    "infinite": measured([float("inf")]),
    "not a number": measured([float("nan")]),
    "no times": measured([]),
    "failed without saying so": measured([1e10]),
    "unknown code": measured([1e10], 99),
    "a code that is none": measured([1e-3]).replace(", 0, 0.5", ", [], 0.5"),
    "NUL in the task": measured([1e-3]).replace("d7b6", "\\u0000"),
    "half a pair": measured([1e-3]).replace("d7b6", "\\ud800"),
    "no date": measured([1e-3]).replace("1616105000", "null"),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_bad_line_is_named_and_the_others_are_read(name: str, log: Path) -> None:
    log.write_text(f"{measured([1e-3])}\n{BAD_RECORDS[name]}\n{measured([2e-3])}\n")
    records, [problem] = read(read_records, log)
    assert [record.run_us for record in records] == [pytest.approx((1e3,)), pytest.approx((2e3,))]
    assert (problem.file, problem.line) == (str(log), 2)
    assert problem.error
    assert len(str(problem).splitlines()) == 1


def test_a_database_tells_program_trace_and_times(tmp_path: Path) -> None:
    trace = [[["GetBlock", [], ["matmul", "main"], ["b0"]]], [[0, [1, 2]]]]
    target = {"kind": "llvm", "num-cores": 4}
    directory = metaschedule(
        tmp_path / "a", [[0, [trace, [1e-5], target, []]], [0, [trace, [1e10], target, []]]]
    )
    [good, failed], problems = read(read_database, directory)
    assert problems == []
    assert (good.target, json.loads(good.steps)) == ('{"kind":"llvm","num-cores":4}', trace)
    assert good.run_us == pytest.approx((10.0,))
    assert (failed.outcome, failed.failure, failed.run_us) == (Outcome.RUN_ERROR, "1e10", ())
    again = metaschedule(tmp_path / "b", [[0, [trace, [1e-5], target, []]]])
    assert read(read_database, again)[0][0].key == good.key


def test_records_of_a_torn_program_are_named_too(tmp_path: Path) -> None:
    directory = metaschedule(
        tmp_path / "a", [[1, [[[], []], [1e-5], "llvm", []]], [0, [[[], []], [1e-5], "llvm", []]]]
    )
    with (directory / WORKLOADS).open("a") as file:
        file.write('["5", "torn')
    records, problems = read(read_database, directory)
    assert len(records) == 1
    assert [(Path(problem.file).name, problem.line) for problem in problems] == [(WORKLOADS, 2), (RECORDS, 1)]
    assert "line 2 of database_workload.json" in problems[1].error


def test_a_file_of_a_database_names_its_own_directory_and_none_below(tmp_path: Path) -> None:
    for name in ("one", "one/below"):
        metaschedule(tmp_path / name, [])
    for name in (RECORDS, WORKLOADS):
        assert find_databases(tmp_path / "one" / name) == [tmp_path / "one"]
    assert find_databases(tmp_path) == [tmp_path / "one", tmp_path / "one" / "below"]


def test_logs_are_found_at_any_depth(tmp_path: Path) -> None:
    for name in ("x/one", "x/y/two"):
        metaschedule(tmp_path / name, [])
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "a.json").touch()
    found = [(log.is_dir(), log.name) for log in find_logs(tmp_path / "x")]
    assert found == [(True, "one"), (True, "two")]
    assert find_logs(tmp_path / "records") == [tmp_path / "records" / "a.json"]
    assert find_logs(tmp_path / "x" / "one" / RECORDS) == [tmp_path / "x" / "one"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="nothing in"):
        find_logs(tmp_path / "empty")


def test_half_a_database_is_refused(tmp_path: Path) -> None:
    (metaschedule(tmp_path / "a", []) / WORKLOADS).unlink()
    with pytest.raises(NotFound, match="database_workload"):
        read(read_database, tmp_path / "a")
    with pytest.raises(NotFound, match="there is no file"):
        read(read_records, tmp_path / "none.json")
