"""Report of the ablation: ratios of each cell to the engines it was timed in turn with."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log, sqrt
from statistics import fmean, stdev
from typing import Any, Final

from benchmarks.ablation_arms import CHANCE, OURS, ZERO
from benchmarks.checkpoints import Raw, curve, first_within, geometric_mean, latency_us

# A run that never becomes as fast as chance counts as twice its budget.
PENALTY: Final = 2.0
CELL: Final = "arm", "model", "mcpu", "threads", "seed"
NOISE: Final = 1.01  # two builds of the same schedules differ by up to 1 %


def report(cells: Mapping[str, Raw]) -> dict[str, Any]:
    """Return each cell's figures, each arm's means by network and in all, and the headline."""
    runs = [_run(cell) for cell in cells.values() if "failed" not in cell]
    arms = {
        arm: {where: _means(chosen) for where, chosen in _by_place(runs, arm).items()}
        for arm in dict.fromkeys(run["arm"] for run in runs)
    }
    ours = arms.get(OURS)
    ratios = _ratios(runs)
    return {
        "runs": runs,
        "failed": {name: cell["failed"] for name, cell in cells.items() if "failed" in cell},
        "arms": arms,
        "parts": {arm: geometric_mean(values) for arm, values in ratios.items()},
        "noise": {arm: _noise(values) for arm, values in ratios.items()},
        "behind_chance": [
            where for where, means in (ours or {}).items() if (means["over_chance"] or 0) > NOISE
        ],
        "headline": ours["all"]["over_chance"] if ours else None,
        "trials_share": ours["all"]["chance_trials_share"] if ours else None,
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the report as Markdown lines, the headline last."""
    places = list(dict.fromkeys(where for means in found["arms"].values() for where in means))
    answer = ["latency in the end over that of no trials (and over chance's, where it was timed beside)"]
    answer += [f"| arm | {' | '.join(places)} |", "|---" * (len(places) + 1) + "|"]
    answer += [f"| {arm} | {' | '.join(_end(means.get(where)) for where in places)} |"
               for arm, means in found["arms"].items()]  # fmt: skip
    answer += [
        "",
        "at shares of the budget that all have, over that of no trials, all networks",
        *_curves(found["arms"]),
    ]
    parts, noise = found["parts"], found["noise"]
    answer += ["", *(f"{arm}: {parts[arm]:.3f} of what ours ends with, {noise[arm]}" for arm in parts)]
    answer += [f"failed: {name}: {why}" for name, why in found["failed"].items()]
    if found["behind_chance"]:
        answer.append(f"behind chance: {', '.join(found['behind_chance'])}")
    if found["headline"] is not None:
        answer.append(f"ours reaches chance's end with {found['trials_share']:.2f} of its trials, a mean")
        answer.append(f"ours over chance in the end, geometric mean: {found['headline']:.3f}")
    return answer


def _run(cell: Raw) -> dict[str, Any]:
    arm = cell["arm"]
    times = cell["latency_us"]
    zero_us, end_us = latency_us(cell, ZERO), latency_us(cell, arm)
    chance_us = latency_us(cell, CHANCE) if CHANCE in times else None
    points = [(0, zero_us), *curve(cell, arm)]
    return {
        "model": cell["model"],
        "mcpu": cell["target"].get("mcpu", cell["target"]["kind"]),
        "threads": cell["target"].get("num-cores"),
        "arm": arm,
        "seed": cell["seed"],
        "zero_us": zero_us,
        "end_us": end_us,
        "onnxruntime_us": latency_us(cell, "onnxruntime"),
        "over_zero": end_us / zero_us,
        "over_chance": end_us / chance_us if chance_us else None,
        "chance_trials_share": _share(cell, points, end_us, chance_us)
        if chance_us and _is_job(arm)
        else None,
        "curve": {round(count / max(1, cell["trials"]), 2): us / zero_us for count, us in points},
        "seconds_per_trial": cell["tuning_sec"] / cell["trials"] if cell["trials"] else None,
        "seconds": cell["total_sec"],
    }


def _is_job(arm: str) -> bool:
    """Return whether the arm is a job; stock's budget differs from that of `chance`."""
    return not arm.startswith("stock")


def _share(cell: Raw, points: Sequence[tuple[int, float]], end_us: float, chance_us: float) -> float:
    """Return the share of the budget after which a checkpoint or the end reaches chance's."""
    reached = first_within([*points, (cell["trials"], end_us)], chance_us)
    return PENALTY if reached is None else reached / cell["trials"]


def _by_place(runs: Sequence[Raw], arm: str) -> dict[str, list[Raw]]:
    """Group an arm's runs by network and target; `all` holds every run."""
    groups = defaultdict[str, list[Raw]](list)
    for run in runs:
        if run["arm"] == arm:
            groups[f"{run['model']} {run['mcpu']} x{run['threads']}"].append(run)
    return {**groups, "all": [run for chosen in groups.values() for run in chosen]}


def _means(runs: Sequence[Raw]) -> dict[str, Any]:
    over_chance = [run["over_chance"] for run in runs if run["over_chance"]]
    shares = [run["chance_trials_share"] for run in runs if run["chance_trials_share"] is not None]
    return {
        "runs": len(runs),
        "over_zero": geometric_mean([run["over_zero"] for run in runs]),
        "over_chance": geometric_mean(over_chance) if over_chance else None,
        "chance_trials_share": fmean(shares) if shares else None,
        "curve": _shared([run["curve"] for run in runs]),
        "over_onnxruntime": geometric_mean([run["end_us"] / run["onnxruntime_us"] for run in runs]),
    }


def _shared(curves: Sequence[Mapping[float, float]]) -> dict[float, float]:
    """Return the mean at each share of the budget that all curves have."""
    common = [share for share in curves[0] if all(share in curve for curve in curves)]
    return {share: geometric_mean([curve[share] for curve in curves]) for share in common}


def _ratios(runs: Sequence[Raw]) -> dict[str, list[float]]:
    """Return final latencies over those of `ours` per arm, for shared cells, slowest first."""
    ends = {tuple(run[key] for key in CELL): run["over_zero"] for run in runs}
    ratios = defaultdict[str, list[float]](list)
    for (arm, *place), end in ends.items():
        ours = ends.get((OURS, *place))
        if ours is not None and arm not in (OURS, ZERO):
            ratios[arm].append(end / ours)
    return dict(sorted(ratios.items(), key=lambda each: -geometric_mean(each[1])))


def _noise(ratios: Sequence[float]) -> str:
    """Describe the mean's standard error, and how often `ours` is faster."""
    logs = list(map(log, ratios))
    error = f"+- {stdev(logs) / sqrt(len(logs)):.3f}" if len(logs) > 1 else "once"
    return f"{error}; ours is faster in {sum(each > 1 for each in ratios)} of {len(ratios)}"


def _end(means: Mapping[str, Any] | None) -> str:
    if means is None:
        return ""
    over_chance = "" if means["over_chance"] is None else f" ({means['over_chance']:.3f})"
    return f"{means['over_zero']:.3f}{over_chance}"


def _curves(arms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"{arm:24} {' '.join(f'{share}: {ratio:.3f}' for share, ratio in means['all']['curve'].items())}"
        for arm, means in arms.items()
        if arm != ZERO
    ]
