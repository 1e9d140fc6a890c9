"""From raw cells to the comparison: trials and seconds until ours is within 1.02 of what stock ends with."""

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean
from typing import Any, Final

WITHIN: Final = 1.02
# A run that never comes so near counts as twice what it spent.
PENALTY: Final = 2.0

Raw = Mapping[str, Any]


def report(cells: Sequence[Raw]) -> dict[str, Any]:
    """Every cell's figures, and the geometric means of the shares; the one of the trials is the headline."""
    runs = [_run(cell) for cell in cells]
    shares = {name: _mean([run[name] for run in runs]) for name in ("trials_share", "seconds_share")}
    models = {run["model"] for run in runs}
    by_model = {
        model: {
            name: _mean([run[name] for run in runs if run["model"] == model])
            for name in ("trials_share", "seconds_share", "final_ratio")
        }
        for model in sorted(models)
    }
    return {"runs": runs, "models": by_model, **shares, "headline": shares["trials_share"]}


def lines(found: Mapping[str, Any]) -> list[str]:
    """A report for people, the headline last."""
    answer = [_line(run) for run in found["runs"]]
    for model, shares in found["models"].items():
        answer.append(
            f"{model:12} {shares['trials_share']:.2f} of stock's trials, {shares['seconds_share']:.2f} of "
            f"its seconds; ends at {shares['final_ratio']:.2f} of its latency"
        )
    answer.append(f"seconds to 1.02 of stock's latency, share of stock's: {found['seconds_share']:.2f}")
    answer.append(f"trials to 1.02 of stock's latency, share of stock's: {found['trials_share']:.2f}")
    return answer


def _run(cell: Raw) -> dict[str, Any]:
    stock, ours = cell["stock"], cell["mallorn"]
    goal_us = WITHIN * _latency(cell, f"stock@{stock['trials']}")
    records = ours["details"]["records"]
    finish_sec = ours["total_sec"] - ours["tuning_sec"]
    reached = _first(_curve(cell), goal_us)
    trials = reached or PENALTY * len(records)
    tuning_sec = records[reached - 1]["at_sec"] if reached else PENALTY * ours["tuning_sec"]
    return {
        "model": cell["model"],
        "seed": cell["seed"],
        "goal_us": goal_us,
        "reached": reached,
        "trials_share": trials / stock["trials"],
        "seconds_share": (tuning_sec + finish_sec) / stock["total_sec"],
        "final_ratio": _latency(cell, "mallorn") / (goal_us / WITHIN),
        "stock_us": goal_us / WITHIN,
        "mallorn_us": _latency(cell, "mallorn"),
        "onnxruntime_us": _latency(cell, "onnxruntime"),
        "failures": {"stock": stock["failures"] / stock["trials"], "mallorn": _failed(records)},
        "busy": {"stock": _stock_busy(stock), "mallorn": _busy(records)},
        "seconds": {"stock": stock["total_sec"], "mallorn": ours["total_sec"]},
    }


def _curve(cell: Raw) -> list[tuple[int, float]]:
    """Trials and latency at our checkpoints, in order."""
    points = [name.partition("@") for name in cell["latency_us"] if name.startswith("mallorn@")]
    return sorted((int(count), _latency(cell, f"mallorn@{count}")) for _, _, count in points)


def _first(curve: Sequence[tuple[int, float]], goal_us: float) -> int | None:
    return next((trials for trials, latency_us in curve if latency_us <= goal_us), None)


def _latency(cell: Raw, name: str) -> float:
    return float(cell["latency_us"][name]["median"])


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


def _mean(values: Sequence[float]) -> float:
    return exp(fmean(map(log, values)))


def _line(run: Mapping[str, Any]) -> str:
    at = f"at trial {run['reached']}" if run["reached"] else "never"
    seconds, failures, busy = run["seconds"], run["failures"], run["busy"]
    return (
        f"{run['model']:12} seed {run['seed']}: stock {run['stock_us']:.0f} us in {seconds['stock']:.0f} s, "
        f"ours there {at}, ends at {run['mallorn_us']:.0f} us in {seconds['mallorn']:.0f} s; "
        f"onnxruntime {run['onnxruntime_us']:.0f} us; "
        f"failed {failures['stock']:.1%} and {failures['mallorn']:.1%}; "
        f"device busy {busy['stock']:.0%} and {busy['mallorn']:.0%}"
    )
