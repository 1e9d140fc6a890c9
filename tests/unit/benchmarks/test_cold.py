"""Cold starts: what the first export and the guesses after it cost and earn."""

from typing import Any

import pytest

from benchmarks.cold import COLUMNS, Row, gain_of_guesses, shell_table, table
from mallorn.core.values.finish_report import BeforeAfter, ModelContests


def row(**other: Any) -> Row:
    steps = {"import": 3.0, "build": 9.0}
    figures = {"name": "m", "tasks": 4, "first_sec": 20.0, "total_sec": 40.0, "again_sec": 30.0}
    return Row(**{**figures, "ratio": 0.8, "is_steady": True, "seconds": steps, **other})


@pytest.mark.parametrize(
    ("inside", "gain"),
    [
        (None, None),
        (ModelContests(latency_us=BeforeAfter(before=120.0, after=100.0), uses_replacements=True), 1.2),
        (ModelContests(latency_us=BeforeAfter(before=100.0, after=120.0)), 1.0),
        (ModelContests(), 1.0),
    ],
    ids=["not timed", "taken", "slower", "wrong, or none better"],
)
def test_guesses_earn_what_the_first_export_is_slower(
    inside: ModelContests | None, gain: float | None
) -> None:
    assert gain_of_guesses(inside) == gain


def test_a_row_tells_the_first_export_over_onnxruntime_and_what_came_after() -> None:
    head, _, line, _, words = table([row(gain=1.25, guesses_sec=7.5)]).splitlines()
    cells = dict(zip(COLUMNS, line.strip("| ").split(" | "), strict=True))
    assert head.count("|") == line.count("|")
    assert (cells["over onnxruntime"], cells["first over onnxruntime"]) == ("0.80", "1.00")
    assert (cells["first over last"], cells["guesses 2 and 3, s"]) == ("1.25", "7.5")
    assert words.endswith("guesses 2 and 3: 1.250 times as fast, in 7.5 s")


def test_rows_of_earlier_runs_know_nothing_of_guesses() -> None:
    assert table([row()]).splitlines()[-1].endswith("at most 0.80")


def test_a_network_is_told_from_the_shell_by_code_and_by_job_with_the_median_of_its_runs() -> None:
    rest = {"job_sec": 7.0, "stop_sec": 0.5, "processor_sec": 16.0}
    runs = [{"start_sec": start} | rest for start in (4.0, 5.0, 60.0)]
    before = [{"start_sec": 12.0, "job_sec": 8.0, "stop_sec": 2.0, "processor_sec": 40.0}]
    lines = shell_table({"m": {"now": {"first": runs}, "before": {"first": before}}}).splitlines()
    assert "| m | now | first | 5.0 | 7.0 | 0.5 | 12.5 | 16.0 |" in lines
    assert "| m | before | first | 12.0 | 8.0 | 2.0 | 22.0 | 40.0 |" in lines
    assert lines[-1].endswith("first now 12.5 s, first before 22.0 s")
