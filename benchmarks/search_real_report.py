"""Compare trials and seconds until ours is within 1.02 of stock's final latency."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from benchmarks.checkpoints import Raw, curve, first_within, geometric_mean, latency_us

WITHIN: Final = 1.02
# A run that never reaches the goal counts as twice its cost.
PENALTY: Final = 2.0
SHARES: Final = ("trials_share", "seconds_share")
DEFAULT: Final = "default"  # origin of candidates that no searcher proposed


def report(cells: Sequence[Raw]) -> dict[str, Any]:
    """Return all runs' figures, means by searcher, and the first searcher's headline."""
    runs = [_run(cell, search) for cell in cells for search in cell["mallorn"]]
    searchers = list(dict.fromkeys(run["search"] for run in runs))
    means = {search: _means([run for run in runs if run["search"] == search]) for search in searchers}
    return {"runs": runs, "searchers": means, "headline": means[searchers[0]]["all"]["trials_share"]}


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the report as lines of text, the headline last."""
    answer = [_line(run) for run in found["runs"]]
    for search, models in found["searchers"].items():
        for model, shares in models.items():
            answer.append(f"{search:12} {model:12} {_mean_line(shares)}")
    answer.append(f"trials to 1.02 of stock's latency, share of stock's: {found['headline']:.3f}")
    return answer


def _mean_line(shares: Mapping[str, Any]) -> str:
    searched = shares["search_trials_share"]
    search = "" if searched is None else f", {searched:.3f} of its trials by search elsewhere"
    return (
        f"{shares['trials_share']:.3f} of stock's trials, {shares['seconds_share']:.3f} of its seconds; "
        f"the defaults are there in {shares['by_defaults']:.0%} of runs{search}; "
        f"ends at {shares['final_ratio']:.2f} of stock's latency, "
        f"{shares['search_ratio']:.2f} of the defaults'"
    )


def _means(runs: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Return the means per model, and over all runs."""
    models = {
        model: [run for run in runs if run["model"] == model] for model in {run["model"] for run in runs}
    }
    return {model: _mean(chosen) for model, chosen in [*sorted(models.items()), ("all", runs)]}


def _mean(runs: list[dict[str, Any]]) -> dict[str, float | None]:
    """Return arithmetic means of shares, which may be 0, and geometric means of ratios."""
    searched = [run["trials_share"] for run in runs if run["reached"] != 0]
    ratios = [run["search_ratio"] for run in runs]
    return {name: fmean(run[name] for run in runs) for name in SHARES} | {
        "by_defaults": 1 - len(searched) / len(runs),
        "search_trials_share": geometric_mean(searched) if searched else None,
        "final_ratio": geometric_mean([run["final_ratio"] for run in runs]),
        "search_ratio": geometric_mean(ratios),
    }


def _run(cell: Raw, search: str) -> dict[str, Any]:
    stock, ours = cell["stock"], cell["mallorn"][search]
    stock_us = latency_us(cell, f"stock@{stock['trials']}")
    records = ours["details"]["records"]
    zero_us = latency_us(cell, "zero")
    reached = first_within([(0, zero_us), *curve(cell, search)], WITHIN * stock_us)
    trials = PENALTY * len(records) if reached is None else reached
    return {
        "model": cell["model"],
        "seed": cell["seed"],
        "search": search,
        "reached": reached,
        "trials_share": trials / stock["trials"],
        "seconds_share": _seconds(cell, ours, reached) / stock["total_sec"],
        "final_ratio": latency_us(cell, search) / stock_us,
        "search_ratio": latency_us(cell, search) / zero_us,
        "defaults_won": _defaults_won(records),
        "zero_us": zero_us,
        "stock_us": stock_us,
        "mallorn_us": latency_us(cell, search),
        "onnxruntime_us": latency_us(cell, "onnxruntime"),
        "failures": {"stock": stock["failures"] / stock["trials"], "mallorn": _failed(records)},
        "busy": {"stock": _stock_busy(stock), "mallorn": _busy(records)},
        "seconds": {"stock": stock["total_sec"], "mallorn": ours["total_sec"]},
    }


def _seconds(cell: Raw, ours: Raw, reached: int | None) -> float:
    """Return seconds to the goal's checkpoint and the finish; without trials, the job's."""
    if reached == 0:
        return float(cell["zero"]["total_sec"])
    finish_sec = ours["total_sec"] - ours["tuning_sec"]
    if reached is None:
        return float(PENALTY * ours["tuning_sec"] + finish_sec)
    return float(ours["details"]["records"][reached - 1]["at_sec"] + finish_sec)


def _defaults_won(records: Sequence[Raw]) -> float:
    """Return the share of tasks whose fastest candidate is a default."""
    fastest: dict[str, Raw] = {}
    for record in records:
        rival = fastest.get(record["workload"])
        if record["latency_us"] and (rival is None or record["latency_us"] < rival["latency_us"]):
            fastest[record["workload"]] = record
    is_default = [record["origin"].endswith(DEFAULT) for record in fastest.values()]
    return sum(is_default) / len(is_default) if is_default else 0.0


def _failed(records: Sequence[Raw]) -> float:
    return sum(record["latency_us"] is None for record in records) / len(records)


def _busy(records: Sequence[Raw]) -> float:
    """Return the share of tuning time in which the device ran candidates."""
    running_sec = sum(record["run_ms"] or 0.0 for record in records) / 1e3
    return running_sec / float(records[-1]["at_sec"])


def _stock_busy(stock: Raw) -> float:
    """Return the share of time in which stock's runner worked, by TVM's profiler."""
    profile = stock["details"]["profile_sec"]
    running_sec = profile.get("SendToRunner", 0.0) + profile.get("JoinRunnerFutures", 0.0)
    return float(running_sec / stock["total_sec"])


def _line(run: Mapping[str, Any]) -> str:
    when = {None: "never", 0: "without a trial"}.get(run["reached"], f"at trial {run['reached']}")
    seconds, failures, busy = run["seconds"], run["failures"], run["busy"]
    return (
        f"{run['model']} seed {run['seed']}: stock {run['stock_us']:.0f} us in {seconds['stock']:.0f} s, "
        f"defaults {run['zero_us']:.0f} us, "
        f"{run['search']} there {when}, ends at {run['mallorn_us']:.0f} us in {seconds['mallorn']:.0f} s; "
        f"defaults won {run['defaults_won']:.0%} of tasks; "
        f"onnxruntime {run['onnxruntime_us']:.0f} us; "
        f"failed {failures['stock']:.1%} and {failures['mallorn']:.1%}; "
        f"device busy {busy['stock']:.0%} and {busy['mallorn']:.0%}"
    )
