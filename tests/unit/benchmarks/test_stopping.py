"""The comparison of stopping rules tells their bias, their cost, and what a wrong winner costs."""

from typing import Any

import pytest

from benchmarks.stopping import RULES, lines, report


def candidate(long_us: float, run_ms: float = 100.0, **by_rule: float) -> dict[str, dict[str, float]]:
    times = {rule: {"latency_us": by_rule.get(rule, long_us), "run_ms": run_ms} for rule in RULES}
    return times | {"long": {"latency_us": long_us, "run_ms": 1000.0}}


def cell(*candidates: Any) -> dict[str, Any]:
    return {"name": "t", "best_us": 10.0, "candidates": list(candidates)}


def test_a_wrong_winner_costs_what_the_long_times_say() -> None:
    racing = report([cell(candidate(10.0, racing=10.6), candidate(10.4, racing=10.5))])["rules"]["racing"]
    assert racing["winner"] == pytest.approx(1.04)
    assert report([cell(candidate(10.0), candidate(10.4))])["rules"]["racing"]["worst_winner"] == 1


def test_bias_of_those_near_the_best_is_told_apart() -> None:
    cells = [cell(candidate(10.0, racing=10.1), candidate(20.0, racing=26.0), candidate(20.0, racing=26.0))]
    facts = report(cells)["rules"]["racing"]
    assert (facts["bias_close"], facts["bias"]) == (pytest.approx(1.01), pytest.approx(1.3))
    assert facts["spread_close"] == pytest.approx(0.01)


def test_the_headline_is_the_worst_task_of_racing_and_printed_last() -> None:
    bad = cell(candidate(10.0, racing=12.0), candidate(11.0))
    found = report([cell(candidate(10.0)), bad])
    assert found["headline"] == pytest.approx(1.1)
    assert lines(found)[-1].endswith("1.1000")
