"""The comparison with stock counts trials and seconds until the whole model is within 1.02 of stock's."""

from typing import Any

import pytest

from benchmarks.search_real_report import lines, report


def cell(curve: dict[int, float], *, seed: int = 0, failed: int = 0) -> dict[str, Any]:
    """Stock: 100 us after 10 trials and 20 s; ours: 8 trials, one a second, and a finish of 2 s."""
    records = [{"latency_us": 5.0, "run_ms": 500.0, "at_sec": at + 1.0} for at in range(8)]
    for record in records[:failed]:
        record["latency_us"] = None
    latency = {f"ga@{trials}": latency_us for trials, latency_us in curve.items()}
    latency |= {"stock@5": 150.0, "stock@10": 100.0, "ga": 90.0, "onnxruntime": 95.0}
    profile = {"JoinRunnerFutures": 4.0, "SendToRunner": 1.0}
    stock = {"trials": 10, "failures": 1, "total_sec": 20.0, "details": {"profile_sec": profile}}
    ours = {"trials": 8, "tuning_sec": 8.0, "total_sec": 10.0, "details": {"records": records}}
    times = {name: {"median": value} for name, value in latency.items()}
    return {"model": "m", "seed": seed, "stock": stock, "mallorn": {"ga": ours}, "latency_us": times}


def test_the_first_checkpoint_within_the_goal_counts_and_its_seconds_include_the_finish() -> None:
    (run,) = report([cell({2: 130.0, 4: 102.0, 8: 95.0})])["runs"]
    assert run["reached"] == 4
    assert run["trials_share"] == pytest.approx(0.4)
    assert run["seconds_share"] == pytest.approx((4 + 2) / 20)
    assert run["final_ratio"] == pytest.approx(0.9)


def test_checkpoints_are_taken_in_the_order_of_their_trials() -> None:
    assert report([cell({8: 90.0, 2: 101.0, 4: 130.0})])["runs"][0]["reached"] == 2


def test_who_never_gets_there_pays_twice() -> None:
    (run,) = report([cell({4: 120.0, 8: 103.0})])["runs"]
    assert run["reached"] is None
    assert run["trials_share"] == pytest.approx(2 * 8 / 10)
    assert run["seconds_share"] == pytest.approx((2 * 8 + 2) / 20)


def test_failures_and_busy_devices_are_told_of_both() -> None:
    (run,) = report([cell({8: 90.0}, failed=2)])["runs"]
    assert run["failures"] == {"stock": 0.1, "mallorn": 0.25}
    assert run["busy"] == {"stock": 0.25, "mallorn": pytest.approx(0.5)}


def test_the_headline_is_a_geometric_mean_and_printed_last() -> None:
    found = report([cell({2: 100.0}), cell({8: 100.0}, seed=1)])
    assert found["headline"] == pytest.approx((0.2 * 0.8) ** 0.5)
    assert found["searchers"]["ga"]["m"] == found["searchers"]["ga"]["all"]
    assert lines(found)[-1].endswith("share of stock's: 0.40")
