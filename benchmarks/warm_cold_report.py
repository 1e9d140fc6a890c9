"""Compare trials until a job is within 1.05 of the cold job's final latency."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.checkpoints import Raw, curve, first_within, geometric_mean

ARMS: Final = ("cold", "warm")
WITHIN: Final = 1.05
# A run that never reaches the goal counts as twice its trials.
PENALTY: Final = 2.0


def report(cells: Sequence[Raw]) -> dict[str, Any]:
    """Return all runs' figures, and geometric means of shares by model and in all."""
    runs = [_run(cell) for cell in cells]
    names = list(dict.fromkeys(run["model"] for run in runs))
    means = {name: _mean([run for run in runs if run["model"] == name]) for name in names}
    return {"runs": runs, "models": means, "headline": _mean(runs)}


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the report as lines of text, the headline last."""
    means = [f"{model:12} {share:.2f} of the cold job's trials" for model, share in found["models"].items()]
    headline = f"trials to 1.05 of the cold job's latency, share of the cold job's: {found['headline']:.2f}"
    return [*map(_line, found["runs"]), *means, headline]


def _run(cell: Raw) -> dict[str, Any]:
    cold, warm = (curve(cell, arm) for arm in ARMS)
    budget, cold_us = cold[-1]
    goal_us = WITHIN * cold_us
    cold_trials = first_within(cold, goal_us) or budget
    warm_trials = first_within(warm, goal_us)
    return {
        "model": cell["model"],
        "seed": cell["seed"],
        "cold_trials": cold_trials,
        "warm_trials": warm_trials,
        "share": (warm_trials or PENALTY * warm[-1][0]) / cold_trials,
        "cold_us": cold_us,
        "warm_us": warm[-1][1],
        "by_base": {arm: _by_base(cell["arms"][arm]) for arm in ARMS},
        "seconds": {arm: cell["arms"][arm]["tuning_sec"] for arm in ARMS},
    }


def _by_base(arm: Raw) -> int:
    """Return the number of rounds that a base proposed."""
    return sum(row["proposal"] is not None for row in arm["details"]["rounds"])


def _mean(runs: Sequence[Raw]) -> float:
    return geometric_mean([run["share"] for run in runs])


def _line(run: Mapping[str, Any]) -> str:
    warm = f"at trial {run['warm_trials']}" if run["warm_trials"] else "never"
    return (
        f"{run['model']} seed {run['seed']}: cold there at trial {run['cold_trials']}, "
        f"ends at {run['cold_us']:.0f} us in {run['seconds']['cold']:.0f} s; "
        f"warm there {warm}, ends at {run['warm_us']:.0f} us in {run['seconds']['warm']:.0f} s; "
        f"{run['by_base']['warm']} rounds by the base"
    )
