"""The comparison with stock counts trials and seconds until the whole model is within 1.02 of stock's."""

from typing import Any

import pytest

from benchmarks.search_real_report import lines, report


def cell(
    curve: dict[int, float], *, seed: int = 0, failed: int = 0, zero_us: float = 200.0
) -> dict[str, Any]:
    """Stock: 100 us after 10 trials and 20 s; ours: 8 trials, one a second, and a finish of 2 s."""
    trial = {"workload": "w", "origin": "ga:default", "latency_us": 5.0, "run_ms": 500.0}
    records = [{**trial, "at_sec": at + 1.0} for at in range(8)]
    for record in records[:failed]:
        record["latency_us"] = None
    latency = {f"ga@{trials}": latency_us for trials, latency_us in curve.items()}
    latency |= {"stock@5": 150.0, "stock@10": 100.0, "ga": 90.0, "onnxruntime": 95.0, "zero": zero_us}
    profile = {"JoinRunnerFutures": 4.0, "SendToRunner": 1.0}
    stock = {"trials": 10, "failures": 1, "total_sec": 20.0, "details": {"profile_sec": profile}}
    ours = {"trials": 8, "tuning_sec": 8.0, "total_sec": 10.0, "details": {"records": records}}
    times = {name: {"median": value} for name, value in latency.items()}
    arms = {"stock": stock, "zero": {"total_sec": 1.0}, "mallorn": {"ga": ours}}
    return {"model": "m", "seed": seed, **arms, "latency_us": times}


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


def test_what_the_defaults_reach_without_a_trial_is_told_apart_from_what_search_reaches() -> None:
    found = report([cell({2: 90.0}, zero_us=101.0), cell({2: 130.0, 4: 100.0}, seed=1)])
    first, second = found["runs"]
    assert (first["reached"], first["trials_share"], first["seconds_share"]) == (0, 0.0, 1 / 20)
    assert second["search_ratio"] == pytest.approx(90 / 200)
    means = found["searchers"]["ga"]["all"]
    assert (means["by_defaults"], means["search_trials_share"]) == (0.5, pytest.approx(0.4))


def test_a_task_whose_fastest_candidate_is_a_default_owes_nothing_to_search() -> None:
    found = cell({8: 90.0})
    records = found["mallorn"]["ga"]["details"]["records"]
    records[3] |= {"workload": "other", "origin": "ga:default", "latency_us": 4.0}
    records[5] |= {"workload": "other", "origin": "ga:mutation", "latency_us": 3.0}
    assert report([found])["runs"][0]["defaults_won"] == 0.5


def test_the_headline_is_a_mean_and_printed_last() -> None:
    found = report([cell({2: 100.0}), cell({8: 100.0}, seed=1)])
    assert found["headline"] == pytest.approx((0.2 + 0.8) / 2)
    assert found["searchers"]["ga"]["m"] == found["searchers"]["ga"]["all"]
    assert lines(found)[-1].endswith("share of stock's: 0.500")
