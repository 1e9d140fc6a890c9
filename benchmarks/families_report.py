"""Compare groupings from raw cells: trials and seconds to 1.05 times a model's best."""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, inf, log
from statistics import fmean, median
from typing import Any, Final

GROUPINGS: Final = ("none", "operator", "structure", "dynamic")
WITHIN: Final = 1.05
# A run that never reaches the goal counts as twice its cost.
PENALTY: Final = 2.0

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a model, a seed and a grouping."""

    model: str
    seed: int
    grouping: str

    @property
    def name(self) -> str:
        return f"{self.model}-{self.seed}-{self.grouping}"

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def report(cells: Sequence[Raw]) -> dict[str, Any]:
    """Return runs by model, groupings' costs over that of `none`, and the best as headline."""
    models = defaultdict[str, list[Raw]](list)
    for cell in cells:
        models[cell["model"]].append(cell)
    results = {model: _model(of_model) for model, of_model in models.items()}
    shares = {grouping: _shares(results.values(), grouping) for grouping in GROUPINGS}
    best = min(shares, key=lambda grouping: shares[grouping]["trials"])
    rank_shares = [
        share
        for cell in cells
        for row in cell["rounds"]
        if (share := row["stats"].get("own_accuracy", row["stats"].get("rank_own")))  # its name until 0.1.0
    ]
    fresh = {"batches": len(rank_shares), "median": median(rank_shares) if rank_shares else None}
    result = {"models": results, "shares_of_none": shares, "fresh_batches_in_order": fresh, "best": best}
    return result | {"headline": shares[best]["trials"]}


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the report as lines of text, the headline last."""
    answer = []
    for model, result in found["models"].items():
        tasks = f"{result['compared_tasks']} of {result['tasks']} tasks"
        answer.append(f"{model}: best {result['best_us']:.0f} us, goal {result['goal_us']:.0f} us, {tasks}")
        runs = sorted(result["runs"], key=lambda run: (run["seed"], GROUPINGS.index(run["grouping"])))
        answer += map(_line, runs)
    for grouping, share in found["shares_of_none"].items():
        costs = f"{share['trials']:.2f} of the trials of none, {share['seconds']:.2f} of its seconds"
        answer.append(f"{grouping:9} {costs}, ends at {share['final_us']:.3f} of its latency")
    if fresh := found["fresh_batches_in_order"]["median"]:
        batches = found["fresh_batches_in_order"]["batches"]
        answer.append(f"models had {fresh:.1%} of the pairs of a fresh batch in order, median of {batches}")
    answer.append(f"{found['best']} needs {found['headline']:.2f} of the trials of none")
    return answer


def _line(run: Raw) -> str:
    reached = f"after {run['trials']} trials, {run['seconds']:.0f} s" if run["reached"] else "never"
    end = f"ends at {run['final_us']:.0f} us with {run['spent']} trials in {run['tuning_sec']:.0f} s"
    shape = f"{run['families']} families, {run['moves']} moves"
    return f"  seed {run['seed']} {run['grouping']:9} {reached:26} {end}, {shape}"


def compared_tasks(cells: Iterable[Raw]) -> set[int]:
    """Return the tasks timed in every run; policies may skip tasks that hardly matter."""
    timed = [{task for _, task, latency_us in cell["trials"] if latency_us is not None} for cell in cells]
    return set.intersection(*timed)


def totals(cell: Raw, tasks: Container[int]) -> list[tuple[float, float]]:
    """Return seconds and weighted total latency per trial; infinite until all are timed."""
    weights = {task["index"]: task["weight"] for task in cell["tasks"] if task["index"] in tasks}
    best = dict.fromkeys(weights, inf)
    curve = []
    for seconds, task, latency_us in cell["trials"]:
        if latency_us is not None and task in best:
            best[task] = min(best[task], latency_us)
        curve.append((seconds, sum(weight * best[index] for index, weight in weights.items())))
    return curve


def _model(cells: Sequence[Raw]) -> dict[str, Any]:
    tasks = compared_tasks(cells)
    curves = [totals(cell, tasks) for cell in cells]
    best_us = min(curve[-1][1] for curve in curves)
    goal_us = WITHIN * best_us
    runs = [_run(cell, curve, goal_us) for cell, curve in zip(cells, curves, strict=True)]
    counts = {"tasks": len(cells[0]["tasks"]), "compared_tasks": len(tasks)}
    return {"best_us": best_us, "goal_us": goal_us, **counts, "runs": runs}


def _run(cell: Raw, curve: Sequence[tuple[float, float]], goal_us: float) -> dict[str, Any]:
    goal_at = next((number for number, (_, total) in enumerate(curve) if total <= goal_us), None)
    trials = PENALTY * len(curve) if goal_at is None else goal_at + 1
    return {
        "seed": cell["seed"],
        "grouping": cell["grouping"],
        "reached": goal_at is not None,
        "trials": trials,
        "seconds": PENALTY * curve[-1][0] if goal_at is None else curve[goal_at][0],
        "spent": len(curve),
        "tuning_sec": curve[-1][0],
        "final_us": curve[-1][1],
        "families": len({task["family"] for task in cell["tasks"]}),
        "moves": len(cell["moves"]),
    }


def _shares(models: Iterable[Mapping[str, Any]], grouping: str) -> dict[str, float]:
    """Return geometric means, over models and seeds, of costs over those of `none`."""
    pairs = [pair for model in models for pair in _pairs(model["runs"], grouping)]
    return {
        cost: exp(fmean(log(run[cost] / base[cost]) for run, base in pairs))
        for cost in ("trials", "seconds", "final_us")
    }


def _pairs(runs: Sequence[Raw], grouping: str) -> list[tuple[Raw, Raw]]:
    base = {run["seed"]: run for run in runs if run["grouping"] == "none"}
    return [(run, base[run["seed"]]) for run in runs if run["grouping"] == grouping]
