"""What a job's decisions add up to, in words."""

from collections.abc import Iterator
from typing import Any, Final

from mallorn.core.states import JobState
from mallorn.wording.units import first_line, latency

TOP: Final = 10
INTENDED: Final = "an 80 % interval should hold 70 to 90 %"
SHARE_COLUMNS: Final = {
    "index": "ID",
    "task": "TASK",
    "rounds": "ROUNDS",
    "trials": "TRIALS",
    "trials_share": "OF TRIALS",
    "gain": "WON",
    "gain_share": "OF GAIN",
}


def share_rows(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The tasks that got most of the budget, and what they brought for it."""
    return [
        {
            **share,
            "task": f"{share['name']} x{share['weight']}",
            "trials_share": f"{share['trials_share']:.0%}",
            "gain": latency(share["gain_us"]),
            "gain_share": f"{share['gain_share']:.0%}",
        }
        for share in _visited(summary)[:TOP]
    ]


def _visited(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [share for share in summary["shares"] if share["rounds"]]


def summary_lines(summary: dict[str, Any]) -> Iterator[str]:
    """The budget, the policy, the forecasts, the tasks at rest and how the job stands; a line each."""
    left_out = len(_visited(summary)) - TOP
    if left_out > 0:
        yield f"tasks:     {left_out} more; all with --json"
    limit = "" if summary["budget"] is None else f" of {summary['budget']}"
    yield (
        f"budget:    {summary['trials']}{limit} trials in {summary['rounds']} rounds; "
        f"total {latency(summary['total_us'])}, {latency(summary['gain_us'])} won since the first times"
    )
    if untimed := len(summary["shares"]) - summary["tasks_timed"]:
        yield f"no time:   {untimed} tasks count for nothing in the total"
    by_policy = ", ".join(f"{count} by {name}" for name, count in summary["rounds_by_policy"].items() if name)
    yield f"policy:    {summary['policy'] or '-'}; rounds: {by_policy or 'none says'}"
    yield f"forecasts: {_forecasts(summary['forecasts'])}"
    for task in summary["at_rest"]:
        yield f"at rest:   task {task['index']} {task['name']}: {first_line(task['reason'])}"
    yield f"job:       {_standing(summary)}"


def _forecasts(found: dict[str, Any]) -> str:
    if not found["judged"]:
        return "none to judge"
    return f"{found['held']} of {found['judged']} held what was found ({found['share']:.0%}; {INTENDED})"


def _standing(summary: dict[str, Any]) -> str:
    """The state and why, as far as anybody said why."""
    reason = first_line(summary["reason"])
    state = JobState(summary["state"])
    return f"{state}: {reason}" if reason else str(state)
