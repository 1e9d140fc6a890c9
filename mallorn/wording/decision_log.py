"""The log of planned rounds as text: lines for a pipe, table rows for a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from operator import attrgetter
from typing import Final

from mallorn.core.states import RoundState
from mallorn.core.values.decision_log import LoggedRound
from mallorn.results.decision_summary import FIRST_VISITS, DecisionSummary, Share
from mallorn.wording.format_values import Cell, Column, first_line, format_latency


@dataclass(frozen=True, slots=True)
class LogRow:
    """Table row of a round, or the heading above a first pass (tasks' first rounds)."""

    round: Cell
    task: str
    trials: str
    why: str
    expected: str = ""
    found: str = ""
    total: str = ""
    sec: str = ""


ROUND_COLUMNS: Final = tuple(
    Column[LogRow](field.name.upper(), attrgetter(field.name)) for field in fields(LogRow)
)


def log_lines(rounds: Sequence[LoggedRound]) -> Iterator[str]:
    """Yield a line per round; tasks' first rounds get a heading with their common reason."""
    for heading, group in _groups(rounds):
        if heading:
            yield f"first pass: {heading.why}; {heading.task}, {heading.trials} trials"
        for row in group:
            yield f"  {_line(row, is_under_heading=True)}" if heading else _line(row)


def log_rows(rounds: Sequence[LoggedRound]) -> Iterator[LogRow]:
    """Yield a table row per round; tasks' first rounds get a heading."""
    for heading, group in _groups(rounds):
        if heading:
            yield heading
        for row in group:
            yield LogRow(
                round=row.index,
                task=_task(row),
                trials=_trials(row),
                why=_format_reason(row, is_under_heading=bool(heading)),
                expected=_interval(row),
                found=_found(row),
                total=_total(row),
                sec="" if row.seconds is None else f"{row.seconds:.1f}",
            )


def _groups(rounds: Sequence[LoggedRound]) -> Iterator[tuple[LogRow | None, list[LoggedRound]]]:
    """Yield groups of consecutive rounds; only first passes have a heading, else None."""
    for first_pass, neighbours in groupby(rounds, key=lambda row: row.policy == FIRST_VISITS):
        group, heading = list(neighbours), None
        if first_pass and len(group) > 1:
            heading = LogRow(
                round=f"{group[0].index} to {group[-1].index}",
                task=f"{len({row.task_index for row in group})} tasks",
                trials=str(sum(row.trials for row in group)),
                why=group[0].why.partition(":")[0],  # the rest concerns only that task
            )
        yield heading, group


def _line(row: LoggedRound, is_under_heading: bool = False) -> str:
    interval = f"expected {_interval(row)}" if row.forecast else ""
    forecast_and_result = ", ".join(part for part in (interval, _found(row)) if part)
    total = f"total {_total(row)}" if _total(row) else ""
    parts = [_format_reason(row, is_under_heading), forecast_and_result, total]
    duration = f" in {row.seconds:.1f} s" if row.seconds is not None else ""
    prefix = f"round {row.index}  {_task(row)}  {_trials(row)} trials: "
    return prefix + "; ".join(part for part in parts if part) + duration


def _format_reason(row: LoggedRound, is_under_heading: bool) -> str:
    failed_parts = [f"without {part.name}: {first_line(part.reason)}" for part in row.reason.skipped_parts]
    disturbance = None if row.stats is None else row.stats.disturbance
    cause = "" if is_under_heading else row.why
    parts = cause, row.proposal, *failed_parts, disturbance.past_description if disturbance else ""
    return "; ".join(part for part in parts if part)


def _task(row: LoggedRound) -> str:
    return f"{row.task_name} x{row.weight}"


def _trials(row: LoggedRound) -> str:
    is_complete = row.state.is_open or row.trials == row.size
    return str(row.size) if is_complete else f"{row.trials} of {row.size}"


def _interval(row: LoggedRound) -> str:
    return _pair(row.forecast.low_us, row.forecast.high_us, "to") if row.forecast else ""


def _found(row: LoggedRound) -> str:
    match row.state:
        case RoundState.QUEUED:
            return "waits for a worker"
        case RoundState.LEASED:
            return f"{row.trials} of {row.size} measured by {row.worker}"
        case RoundState.POISON:
            return f"given up: {first_line(row.error)}"
        case RoundState.CANCELLED:
            return "cancelled"
        case RoundState.DONE:
            if not row.trials:
                return "nothing left to try"
            if row.best_us is None:
                return f"nothing valid, {row.failures} failed"
            verdict = {True: " (in)", False: " (out)", None: ""}[row.is_in_interval]
            return f"found {format_latency(row.best_us)}{verdict}"


def _total(row: LoggedRound) -> str:
    before_us, after_us = row.total_before_us, row.total_after_us
    if after_us is None or row.state.is_open:
        return ""
    if before_us is None:
        return format_latency(after_us)
    return format_latency(after_us) if after_us == before_us else _pair(before_us, after_us, "->")


def _pair(one_us: float, other_us: float, joint: str) -> str:
    if max(one_us, other_us) >= 1000:
        return f"{one_us / 1000:.3f} {joint} {other_us / 1000:.3f} ms"
    return f"{one_us:.1f} {joint} {other_us:.1f} us"


TOP: Final = 10
INTENDED: Final = "an 80 % interval should hold 70 to 90 %"
SHARE_COLUMNS: Final = (
    Column[Share]("ID", lambda share: share.index),
    Column[Share]("TASK", lambda share: f"{share.name} x{share.weight}"),
    Column[Share]("ROUNDS", lambda share: share.rounds),
    Column[Share]("TRIALS", lambda share: share.trials),
    Column[Share]("OF TRIALS", lambda share: f"{share.trials_share:.0%}"),
    Column[Share]("WON", lambda share: format_latency(share.gain_us)),
    Column[Share]("OF GAIN", lambda share: f"{share.gain_share:.0%}"),
)


def top_shares(summary: DecisionSummary) -> list[Share]:
    """Return the TOP tasks with the most trials, without tasks that have no round."""
    return [share for share in summary.shares if share.rounds][:TOP]


def summary_lines(summary: DecisionSummary) -> Iterator[str]:
    """Yield lines on the budget, the policy, forecasts, ended tasks and the job's state."""
    omitted = sum(share.rounds > 0 for share in summary.shares) - TOP
    if omitted > 0:
        yield f"tasks:     {omitted} more; all with --json"
    limit = "" if summary.budget is None else f" of {summary.budget}"
    yield (
        f"budget:    {summary.trials}{limit} trials in {summary.rounds} rounds; "
        f"total {format_latency(summary.total_us)}, {format_latency(summary.gain_us)} won since the first "
        "times"
    )
    if untimed := len(summary.shares) - summary.tasks_timed:
        yield f"no time:   {untimed} tasks are left out of the total"
    by_policy = ", ".join(f"{count} by {name}" for name, count in summary.rounds_by_policy.items() if name)
    yield f"policy:    {summary.policy or '-'}; rounds: {by_policy or 'none says'}"
    calibration = summary.forecasts
    counts = f"{calibration.held} of {calibration.judged} held what was found"
    share = (
        "none to judge" if calibration.share is None else f"{counts} ({calibration.share:.0%}; {INTENDED})"
    )
    yield f"forecasts: {share}"
    for task in summary.at_rest:
        yield f"at rest:   task {task.index} {task.name}: {first_line(task.reason)}"
    yield f"job:       {summary.state}{f': {summary.explanation}' if summary.explanation else ''}"
