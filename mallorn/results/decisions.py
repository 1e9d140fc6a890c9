"""What a job's decision log adds up to: the weighted total along the way, who got the budget, how good
the forecasts were."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mallorn.results.history import at_start, lower, timed, total

FIRST_VISITS: Final = "first-pass"
Row = dict[str, Any]


def with_totals(rounds: Iterable[Row], tasks: Sequence[Row]) -> list[Row]:
    """Rounds, oldest first, each with the job's weighted total before and after it.

    It is the sum over tasks that have a time by now, and None until each of those has one. Rounds that
    overlapped count in the order they were planned.
    """
    rows = list(rounds)
    best_us = at_start(rows, tasks)
    weights = {task["index"]: task["weight"] for task in timed(tasks)}
    told = []
    for row in rows:
        best_us[row["task_index"]] = row["before_us"]
        before_us = total(best_us, weights)
        best_us[row["task_index"]] = lower(row["before_us"], row["found_us"])
        told.append({**row, "total_before_us": before_us, "total_after_us": total(best_us, weights)})
    return told


def summarise(job: Row, tasks: Sequence[Row], rounds: Sequence[Row]) -> Row:
    """How the budget was shared and what it brought, how often forecasts held, and how the job stands."""
    return {
        "state": job["state"],
        "reason": job["reason"],
        "policy": job["options"].get("policy"),
        "rounds": len(rounds),
        "trials": sum(row["trials"] for row in rounds),
        "budget": job["trials"],
        "rounds_by_policy": dict(Counter(row["policy"] for row in rounds)),
        "gain_us": _sum_gains(rounds),
        "total_us": sum(task["weight"] * task["latency_us"] for task in timed(tasks)),
        "tasks_timed": len(timed(tasks)),
        "shares": _shares(tasks, rounds),
        "forecasts": calibration(rounds),
        "at_rest": [
            {"index": task["index"], "name": task["name"], "reason": task["reason"]}
            for task in tasks
            if task["reason"]
        ],
    }


def calibration(rounds: Iterable[Mapping[str, Any]]) -> Row:
    """How many forecasts could be judged, and how many intervals held what was found."""
    judged = [row["in_interval"] for row in rounds if row["in_interval"] is not None]
    held = sum(judged)
    return {"judged": len(judged), "held": held, "share": held / len(judged) if judged else None}


def _shares(tasks: Sequence[Row], rounds: Sequence[Row]) -> list[Row]:
    """One row a task, the largest share of the trials first."""
    trials, gain_us = sum(row["trials"] for row in rounds), _sum_gains(rounds)
    shares = []
    for task in tasks:
        own = [row for row in rounds if row["task_index"] == task["index"]]
        own_trials, own_gain_us = sum(row["trials"] for row in own), _sum_gains(own)
        shares.append(
            {
                "index": task["index"],
                "name": task["name"],
                "weight": task["weight"],
                "rounds": len(own),
                "trials": own_trials,
                "trials_share": own_trials / trials if trials else 0.0,
                "gain_us": own_gain_us,
                "gain_share": own_gain_us / gain_us if gain_us else 0.0,
            }
        )
    return sorted(shares, key=lambda share: (-share["trials"], -share["gain_us"], share["index"]))


def _sum_gains(rounds: Iterable[Row]) -> float:
    return float(sum(row["gain_us"] or 0.0 for row in rounds))
