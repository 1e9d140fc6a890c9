"""What `make test` says at its end: each stage beside its budget, and who passed it by which tests."""

from typing import Any

from tests.stages import Ended, summary

TESTS = {"numbers": {"passed": 1200, "failed": 1}, "slowest": [[31.4, "a.py::test_a"], [2.0, "b.py::test_b"]]}


def ended(seconds: float, **changes: Any) -> Ended:
    known = {"name": "test-unit", "failed": False, "budget_sec": 100.0, "tests": TESTS, "left_out": []}
    return Ended(**known | {"seconds": seconds} | changes)


def test_a_stage_is_shown_with_its_seconds_its_budget_and_its_numbers() -> None:
    (_, line, *_) = summary("test", [ended(120.0)])
    assert line.split() == [
        "ok",
        "test-unit",
        "120",
        "s",
        "of",
        "100",
        "s",
        "1,200",
        "passed,",
        "1",
        "failed",
    ]


def test_a_stage_that_passes_its_budget_by_a_quarter_is_named_with_its_slowest_tests() -> None:
    lines = list(summary("test", [ended(120.0), ended(126.0, name="test-faults")]))
    assert "test-faults took 126 s, and its budget is 100 s" in lines
    assert sum("a.py::test_a" in line for line in lines) == 1
    assert not any(line.startswith("test-unit took") for line in lines)


def test_what_failed_and_what_was_left_out_is_told_though_no_test_ran() -> None:
    stage = ended(3.0, name="checks", failed=True, tests={}, left_out=["test-page"])
    (_, line, *_) = summary("test", [stage])
    assert line.startswith("failed")
    assert line.endswith("left out: test-page")


def test_the_numbers_of_all_stages_are_added() -> None:
    *_, numbers, took = summary("test-all", [ended(1.0), ended(2.0)])
    assert numbers == "2400 passed, 2 failed, 0 skipped"
    assert took == "make test-all took 3 s"
