"""From raw cells to the comparison: trials and seconds until ours is within 1.02 of what stock ends with."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.checkpoints import Raw, curve, first_within, geometric_mean, latency_us

WITHIN: Final = 1.02
# A run that never comes so near counts as twice what it spent.
PENALTY: Final = 2.0
SHARES: Final = ("trials_share", "seconds_share", "final_ratio")


def report(cells: Sequence[Raw]) -> dict[str, Any]:
    """Every run's figures, and their geometric means by searcher; the first one's trials are the headline."""
    runs = [_run(cell, search) for cell in cells for search in cell["mallorn"]]
    searchers = list(dict.fromkeys(run["search"] for run in runs))
    means = {search: _means([run for run in runs if run["search"] == search]) for search in searchers}
    return {"runs": runs, "searchers": means, "headline": means[searchers[0]]["all"]["trials_share"]}


def lines(found: Mapping[str, Any]) -> list[str]:
    """A report for people, the headline last."""
    answer = [_line(run) for run in found["runs"]]
    for search, models in found["searchers"].items():
        for model, shares in models.items():
            costs = f"{shares['trials_share']:.2f} of stock's trials, {shares['seconds_share']:.2f} of its"
            end = f"seconds; ends at {shares['final_ratio']:.2f} of its latency"
            answer.append(f"{search:12} {model:12} {costs} {end}")
    answer.append(f"trials to 1.02 of stock's latency, share of stock's: {found['headline']:.2f}")
    return answer


def _means(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Model by model, and over all."""
    models = {
        model: [run for run in runs if run["model"] == model] for model in {run["model"] for run in runs}
    }
    return {
        model: {name: geometric_mean([run[name] for run in chosen]) for name in SHARES}
        for model, chosen in [*sorted(models.items()), ("all", runs)]
    }


def _run(cell: Raw, search: str) -> dict[str, Any]:
    stock, ours = cell["stock"], cell["mallorn"][search]
    stock_us = latency_us(cell, f"stock@{stock['trials']}")
    records = ours["details"]["records"]
    finish_sec = ours["total_sec"] - ours["tuning_sec"]
    reached = first_within(curve(cell, search), WITHIN * stock_us)
    trials = reached or PENALTY * len(records)
    tuning_sec = records[reached - 1]["at_sec"] if reached else PENALTY * ours["tuning_sec"]
    return {
        "model": cell["model"],
        "seed": cell["seed"],
        "search": search,
        "reached": reached,
        "trials_share": trials / stock["trials"],
        "seconds_share": (tuning_sec + finish_sec) / stock["total_sec"],
        "final_ratio": latency_us(cell, search) / stock_us,
        "stock_us": stock_us,
        "mallorn_us": latency_us(cell, search),
        "onnxruntime_us": latency_us(cell, "onnxruntime"),
        "failures": {"stock": stock["failures"] / stock["trials"], "mallorn": _failed(records)},
        "busy": {"stock": _stock_busy(stock), "mallorn": _busy(records)},
        "seconds": {"stock": stock["total_sec"], "mallorn": ours["total_sec"]},
    }


def _failed(records: Sequence[Raw]) -> float:
    return sum(record["latency_us"] is None for record in records) / len(records)


def _busy(records: Sequence[Raw]) -> float:
    """The share of the tuning in which the device ran a candidate."""
    running_sec = sum(record["run_ms"] or 0.0 for record in records) / 1e3
    return running_sec / float(records[-1]["at_sec"])


def _stock_busy(stock: Raw) -> float:
    """As TVM's own profiler has it: the share of the time in which its runner was at work."""
    profile = stock["details"]["profile_sec"]
    running_sec = profile.get("SendToRunner", 0.0) + profile.get("JoinRunnerFutures", 0.0)
    return float(running_sec / stock["total_sec"])


def _line(run: Mapping[str, Any]) -> str:
    at = f"at trial {run['reached']}" if run["reached"] else "never"
    seconds, failures, busy = run["seconds"], run["failures"], run["busy"]
    return (
        f"{run['model']} seed {run['seed']}: stock {run['stock_us']:.0f} us in {seconds['stock']:.0f} s, "
        f"{run['search']} there {at}, ends at {run['mallorn_us']:.0f} us in {seconds['mallorn']:.0f} s; "
        f"onnxruntime {run['onnxruntime_us']:.0f} us; "
        f"failed {failures['stock']:.1%} and {failures['mallorn']:.1%}; "
        f"device busy {busy['stock']:.0%} and {busy['mallorn']:.0%}"
    )
