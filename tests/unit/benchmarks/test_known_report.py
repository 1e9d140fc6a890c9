"""What was known before a network, beside the end of its own trials."""

from typing import Any

import pytest

from benchmarks.known_report import lines, report

TIMES = {"own": 100.0, "zero": 110.0, "zero-shot": 104.0, "one-shot": 103.0, "warm": 101.0, "own@16": 106.0}


def cell(model: str = "m", **times: float) -> dict[str, Any]:
    arm = {"total_sec": 5.0, "details": {"report": {}}}
    told = {"a": {"source": "near"}, "b": {"source": "near"}, "c": {"source": "constructed"}}
    arms = {name: arm for name in TIMES if "@" not in name}
    arms["zero-shot"] = {"total_sec": 9.0, "details": {"report": {"answers": told}}}
    latency = {name: {"median": us} for name, us in (TIMES | times).items()}
    return {"model": model, "target": {"kind": "llvm", "mcpu": "znver4"}, "arms": arms, "latency_us": latency}


def test_every_arm_is_told_over_the_networks_own_end() -> None:
    (run,) = report([cell()])["runs"]
    expected = {name: us / 100.0 for name, us in TIMES.items() if name != "own"}
    assert run["ratios"] == pytest.approx(expected)
    assert (run["target"], run["own_us"], run["seconds"]["zero-shot"]) == ("znver4", 100.0, 9.0)


def test_the_sources_of_its_tasks_are_counted() -> None:
    (run,) = report([cell()])["runs"]
    assert run["sources"] == {"near": 2, "constructed": 1}


def test_a_warm_job_counts_as_there_within_the_noise_of_two_timings() -> None:
    assert report([cell(), cell(warm=102.0), cell(warm=90.0)])["warm_reached"] == 2


def test_cells_without_a_warm_job_are_not_counted_among_them() -> None:
    without = cell("n")
    del without["latency_us"]["warm"]
    found = report([cell(), without])
    assert (found["warm_reached"], found["warm_of"]) == (1, 1)
    assert list(lines(found))[-2].endswith("own trials end: 1 of 1")


def test_the_headline_is_zero_shots_geometric_mean_and_printed_last() -> None:
    found = report([cell(**{"zero-shot": 100.0}), cell("n", **{"zero-shot": 121.0})])
    assert found["headline"] == pytest.approx(1.1)
    assert list(lines(found))[-1].endswith("own trials: 1.100")
