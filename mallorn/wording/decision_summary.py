"""What a job's decisions add up to, in words."""

from collections.abc import Iterator
from typing import Final

from mallorn.results.decision_summary import DecisionSummary, Share
from mallorn.wording.format_values import Column, first_line, latency

TOP: Final = 10
INTENDED: Final = "an 80 % interval should hold 70 to 90 %"
SHARE_COLUMNS: Final = (
    Column[Share]("ID", lambda share: share.index),
    Column[Share]("TASK", lambda share: f"{share.name} x{share.weight}"),
    Column[Share]("ROUNDS", lambda share: share.rounds),
    Column[Share]("TRIALS", lambda share: share.trials),
    Column[Share]("OF TRIALS", lambda share: f"{share.trials_share:.0%}"),
    Column[Share]("WON", lambda share: latency(share.gain_us)),
    Column[Share]("OF GAIN", lambda share: f"{share.gain_share:.0%}"),
)


def top_shares(summary: DecisionSummary) -> list[Share]:
    """The tasks that got most of the budget."""
    return _visited(summary)[:TOP]


def _visited(summary: DecisionSummary) -> list[Share]:
    return [share for share in summary.shares if share.rounds]


def summary_lines(summary: DecisionSummary) -> Iterator[str]:
    """The budget, the policy, the forecasts, the tasks at rest and how the job stands; a line each."""
    left_out = len(_visited(summary)) - TOP
    if left_out > 0:
        yield f"tasks:     {left_out} more; all with --json"
    limit = "" if summary.budget is None else f" of {summary.budget}"
    yield (
        f"budget:    {summary.trials}{limit} trials in {summary.rounds} rounds; "
        f"total {latency(summary.total_us)}, {latency(summary.gain_us)} won since the first times"
    )
    if untimed := len(summary.shares) - summary.tasks_timed:
        yield f"no time:   {untimed} tasks count for nothing in the total"
    by_policy = ", ".join(f"{count} by {name}" for name, count in summary.rounds_by_policy.items() if name)
    yield f"policy:    {summary.policy or '-'}; rounds: {by_policy or 'none says'}"
    found = summary.forecasts
    held = f"{found.held} of {found.judged} held what was found"
    share = "none to judge" if found.share is None else f"{held} ({found.share:.0%}; {INTENDED})"
    yield f"forecasts: {share}"
    for task in summary.at_rest:
        yield f"at rest:   task {task.index} {task.name}: {first_line(task.reason)}"
    reason = first_line(summary.reason)
    yield f"job:       {summary.state}{f': {reason}' if reason else ''}"
