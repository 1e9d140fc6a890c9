"""With a base against without: trials until the whole model is within 1.05 of what the cold job ends with."""

from typing import Any

import pytest

from benchmarks.warm_cold_report import lines, report

COLD = {2: 200.0, 4: 120.0, 8: 104.0, 16: 100.0}


def cell(warm: dict[int, float], *, model: str = "m", seed: int = 0) -> dict[str, Any]:
    rounds = [{"proposal": None}, {"proposal": "first round proposed by base:matmul/xgboost@1"}]
    arm = {"tuning_sec": 9.0, "details": {"rounds": rounds}}
    curves = {f"cold@{trials}": us for trials, us in COLD.items()}
    curves |= {f"warm@{trials}": us for trials, us in warm.items()}
    times = {name: {"median": us} for name, us in curves.items()}
    arms = {"cold": arm | {"details": {"rounds": rounds[:1]}}, "warm": arm}
    return {"model": model, "seed": seed, "arms": arms, "latency_us": times}


def test_each_is_charged_up_to_its_first_checkpoint_within_the_goal() -> None:
    (run,) = report([cell({2: 105.0, 4: 110.0, 16: 90.0})])["runs"]
    assert (run["cold_trials"], run["warm_trials"]) == (8, 2)
    assert run["share"] == pytest.approx(2 / 8)
    assert (run["cold_us"], run["warm_us"]) == (100.0, 90.0)


def test_who_never_gets_there_pays_twice_what_it_spent() -> None:
    (run,) = report([cell({4: 130.0, 16: 110.0})])["runs"]
    assert run["warm_trials"] is None
    assert run["share"] == pytest.approx(2 * 16 / 8)


def test_rounds_that_the_base_proposed_are_counted() -> None:
    (run,) = report([cell({2: 100.0})])["runs"]
    assert run["by_base"] == {"cold": 0, "warm": 1}


def test_the_headline_is_a_geometric_mean_over_models_and_seeds_and_printed_last() -> None:
    found = report([cell({2: 100.0}), cell({8: 100.0}, seed=1), cell({4: 100.0}, model="other")])
    assert found["models"] == {"m": pytest.approx(0.5), "other": pytest.approx(0.5)}
    assert found["headline"] == pytest.approx((0.25 * 1 * 0.5) ** (1 / 3))
    assert lines(found)[-1].endswith("share of the cold job's: 0.50")
