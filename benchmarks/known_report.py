"""Compare each arm's latency and seconds with a network's own trials, from raw cells."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.checkpoints import Raw, geometric_mean, latency_us

OWN: Final = "own"
HEADLINE: Final = "zero-shot"
WARM: Final = "warm"
#: Two timings of one library differ by this; `warm` reaches `own` within it.
NOISE: Final = 1.01


def report(cells: Sequence[Raw]) -> dict[str, Any]:
    """Return latencies over that of `own` per cell, geometric means, and the headline."""
    runs = [_run(cell) for cell in cells]
    arms = list(dict.fromkeys(arm for run in runs for arm in run["ratios"]))
    means = {
        arm: geometric_mean([run["ratios"][arm] for run in runs if arm in run["ratios"]]) for arm in arms
    }
    warm = [run["ratios"][WARM] for run in runs if WARM in run["ratios"]]
    reached = {"warm_reached": sum(ratio <= NOISE for ratio in warm), "warm_of": len(warm)}
    return {"runs": runs, "means": means, **reached, "headline": means[HEADLINE]}


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report as lines of text, the headline last."""
    for run in found["runs"]:
        ratios = ", ".join(f"{arm} {ratio:.3f}" for arm, ratio in run["ratios"].items())
        seconds = ", ".join(f"{arm} {taken:.0f} s" for arm, taken in run["seconds"].items())
        yield f"{run['model']} on {run['target']}: {ratios}; {seconds}; {_describe_sources(run['sources'])}"
    yield "; ".join(f"{arm} {mean:.3f}" for arm, mean in found["means"].items())
    yield f"warm jobs that are where own trials end: {found['warm_reached']} of {found['warm_of']}"
    yield f"{HEADLINE} over the end of the network's own trials: {found['headline']:.3f}"


def _run(cell: Raw) -> dict[str, Any]:
    own_us = latency_us(cell, OWN)
    names = [name for name in cell["latency_us"] if name != OWN]
    return {
        "model": cell["model"],
        "target": cell["target"].get("mcpu", cell["target"]["kind"]),
        "own_us": own_us,
        "ratios": {name: latency_us(cell, name) / own_us for name in names},
        "seconds": {name: arm["total_sec"] for name, arm in cell["arms"].items()},
        "sources": _sources(cell["arms"].get(HEADLINE, {})),
    }


def _sources(arm: Raw) -> dict[str, int]:
    """Count the tasks by the source of their answer."""
    report = arm.get("details", {}).get("report", {})
    schedules = report.get("unmeasured_schedules") or report.get("answers") or {}  # its name until 0.1.0
    return dict(Counter(schedule["source"] for schedule in schedules.values()))


def _describe_sources(sources: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {source}" for source, count in sources.items()) or "no sources told"
